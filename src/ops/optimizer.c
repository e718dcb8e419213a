/* optimizer.c - the updates of optimizers: elementwise ops that write a parameter and its state.
 *
 * The inputs of each are the parameter, the state of its optimizer (slots), the gradient, and then
 * numbers: tensors of rank 0 for what changes from step to step (the learning rate, and what
 * depends on the number of the step), so that a plan stays the same. gd_dispatch_each (call.h)
 * updates a list of parameters in one call. Numbers may be f64: an op that writes its inputs
 * computes in their dtype.
 */
#include "gradus/ops.h"
#include "ops/infer.h"

/*op sgd_step(p!, g, lr) -> p  elementwise nograd
 * One step of gradient descent: p minus lr times the gradient g.
 *   weight_decay float = 0   times p, added to g
 *   p = p - lr * (g + weight_decay * p)
 */

/*op momentum_step(p!, v!, g, lr, scale) -> p  elementwise nograd
 * One step of gradient descent with momentum; v is the running sum of gradients, from 0. `scale` is
 * a factor of the gradient: 1 in the first step, 1 - dampening later.
 *   momentum float = 0.9
 *   nesterov bool = false    looks one step ahead
 *   weight_decay float = 0   times p, added to g
 *   d = scale * (g + weight_decay * p)
 *   s = momentum * v + d
 *   v = s
 *   p = p - lr * (nesterov ? d + momentum * s : s)
 */

/*op adam_step(p!, m!, v!, g, step, root, keep) -> p  elementwise nograd
 * One step of Adam; m and v are the running means of the gradient and of its square, from 0. In
 * step number t, `step` is lr / (1 - beta1^t) and `root` is sqrt(1 - beta2^t). `keep` is the part
 * of p that decoupled weight decay leaves, 1 - lr * weight_decay for AdamW, and 1 for Adam.
 *   beta1 float = 0.9
 *   beta2 float = 0.999
 *   eps float = 1e-8
 *   weight_decay float = 0   times p, added to g
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * p
 *   a = beta1 * m + (1 - beta1) * d
 *   b = beta2 * v + (1 - beta2) * d * d
 *   m = a
 *   v = b
 *   p = p * keep - step * a / (sqrt(b) / root + eps)
 */

/*op amsgrad_step(p!, m!, v!, top!, g, step, root, keep) -> p  elementwise nograd
 * adam_step that divides by the root of `top`, the largest v so far, from 0.
 *   beta1 float = 0.9
 *   beta2 float = 0.999
 *   eps float = 1e-8
 *   weight_decay float = 0   times p, added to g
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * p
 *   a = beta1 * m + (1 - beta1) * d
 *   b = beta2 * v + (1 - beta2) * d * d
 *   c = max(top, b)
 *   m = a
 *   v = b
 *   top = c
 *   p = p * keep - step * a / (sqrt(c) / root + eps)
 */

/*op rmsprop_step(p!, v!, g, lr) -> p  elementwise nograd
 * One step of RMSProp; v is the running mean of the gradient's square, from 0.
 *   alpha float = 0.99
 *   eps float = 1e-8
 *   weight_decay float = 0   times p, added to g
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * p
 *   b = alpha * v + (1 - alpha) * d * d
 *   v = b
 *   p = p - lr * d / (sqrt(b) + eps)
 */

/*op rmsprop_momentum_step(p!, v!, buf!, g, lr) -> p  elementwise nograd
 * rmsprop_step with momentum; buf is the running sum of what the rate is multiplied by, from 0.
 *   alpha float = 0.99
 *   eps float = 1e-8
 *   momentum float = 0.9
 *   weight_decay float = 0   times p, added to g
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * p
 *   b = alpha * v + (1 - alpha) * d * d
 *   s = momentum * buf + d / (sqrt(b) + eps)
 *   v = b
 *   buf = s
 *   p = p - lr * s
 */

/*op rmsprop_centered_step(p!, v!, a!, g, lr) -> p  elementwise nograd
 * rmsprop_step that divides by the root of the gradient's variance; a is its running mean, from 0.
 *   alpha float = 0.99
 *   eps float = 1e-8
 *   weight_decay float = 0   times p, added to g
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * p
 *   b = alpha * v + (1 - alpha) * d * d
 *   e = alpha * a + (1 - alpha) * d
 *   v = b
 *   a = e
 *   p = p - lr * d / (sqrt(b - e * e) + eps)
 */

/*op rmsprop_centered_momentum_step(p!, v!, a!, buf!, g, lr) -> p  elementwise nograd
 * rmsprop_centered_step with the momentum of rmsprop_momentum_step.
 *   alpha float = 0.99
 *   eps float = 1e-8
 *   momentum float = 0.9
 *   weight_decay float = 0   times p, added to g
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * p
 *   b = alpha * v + (1 - alpha) * d * d
 *   e = alpha * a + (1 - alpha) * d
 *   s = momentum * buf + d / (sqrt(b - e * e) + eps)
 *   v = b
 *   a = e
 *   buf = s
 *   p = p - lr * s
 */

/*op adagrad_step(p!, v!, g, lr) -> p  elementwise nograd
 * One step of AdaGrad; v is the sum of the gradient's squares.
 *   eps float = 1e-10
 *   weight_decay float = 0   times p, added to g
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * p
 *   b = v + d * d
 *   v = b
 *   p = p - lr * d / (sqrt(b) + eps)
 */

#include "optimizer.gen.h"
