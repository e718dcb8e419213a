/* optimizer.c - the updates of optimizers: elementwise ops that write a parameter and its state.
 *
 * The inputs are the parameter, the optimizer's state for it (slots), the gradient, and then
 * tensors of rank 0. These hold the numbers that change from step to step: the learning rate and
 * factors that depend on the step count. As tensors they do not change the plan. gd_dispatch_each
 * (call.h) updates a list of parameters in one call. The numbers may be f64: an op that mutates
 * inputs computes in the dtype of those inputs.
 */
#include "gradus/ops.h"
#include "dispatch/infer.h"

/*op sgd_step(p!, g, lr) -> p  elementwise nograd
 * One step of gradient descent: p minus lr times the gradient g.
 *   weight_decay float = 0   times p, added to g
 *   l1 bool = false          the decay is times the sign of p
 *   p = p - lr * (g + weight_decay * (l1 ? sign(p) : p))
 */

/*op momentum_step(p!, v!, g, lr, scale) -> p  elementwise nograd
 * One step of gradient descent with momentum. v is the decaying sum of gradients and starts at 0.
 * `scale` multiplies the gradient: 1 in the first step, 1 - dampening later.
 *   momentum float = 0.9
 *   nesterov bool = false    Nesterov momentum
 *   lr_inside bool = false   v is the sum of the gradients times lr
 *   weight_decay float = 0   times p, added to g
 *   l1 bool = false          the decay is times the sign of p
 *   d = scale * (g + weight_decay * (l1 ? sign(p) : p))
 *   e = lr_inside ? lr * d : d
 *   s = momentum * v + e
 *   v = s
 *   p = p - (lr_inside ? 1 : lr) * (nesterov ? e + momentum * s : s)
 */

/*op adam_step(p!, m!, v!, g, step, root, keep) -> p  elementwise nograd
 * One step of Adam. m and v are the running means of the gradient and of its square; they start at
 * 0. In step t, `step` is lr / (1 - beta1^t) and `root` is sqrt(1 - beta2^t). `keep` multiplies p
 * before the update: 1 - lr * weight_decay for AdamW, 1 for Adam.
 *   beta1 float = 0.9
 *   beta2 float = 0.999
 *   eps float = 1e-8
 *   weight_decay float = 0   times p, added to g
 *   l1 bool = false          the decay is times the sign of p
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * (l1 ? sign(p) : p)
 *   a = beta1 * m + (1 - beta1) * d
 *   b = beta2 * v + (1 - beta2) * d * d
 *   m = a
 *   v = b
 *   p = p * keep - step * a / (sqrt(b) / root + eps)
 */

/*op amsgrad_step(p!, m!, v!, top!, g, step, root, keep) -> p  elementwise nograd
 * adam_step that divides by the root of `top`, the largest v so far; it starts at 0.
 *   beta1 float = 0.9
 *   beta2 float = 0.999
 *   eps float = 1e-8
 *   weight_decay float = 0   times p, added to g
 *   l1 bool = false          the decay is times the sign of p
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * (l1 ? sign(p) : p)
 *   a = beta1 * m + (1 - beta1) * d
 *   b = beta2 * v + (1 - beta2) * d * d
 *   c = max(top, b)
 *   m = a
 *   v = b
 *   top = c
 *   p = p * keep - step * a / (sqrt(c) / root + eps)
 */

/*op rmsprop_step(p!, v!, g, lr) -> p  elementwise nograd
 * One step of RMSProp. v is the running mean of the gradient's square and starts at 0.
 *   alpha float = 0.99
 *   eps float = 1e-8
 *   weight_decay float = 0   times p, added to g
 *   l1 bool = false          the decay is times the sign of p
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * (l1 ? sign(p) : p)
 *   b = alpha * v + (1 - alpha) * d * d
 *   v = b
 *   p = p - lr * d / (sqrt(b) + eps)
 */

/*op rmsprop_momentum_step(p!, v!, buf!, g, lr) -> p  elementwise nograd
 * rmsprop_step with momentum. buf is the decaying sum of the steps before they are multiplied by
 * lr; it starts at 0.
 *   alpha float = 0.99
 *   eps float = 1e-8
 *   momentum float = 0.9
 *   weight_decay float = 0   times p, added to g
 *   l1 bool = false          the decay is times the sign of p
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * (l1 ? sign(p) : p)
 *   b = alpha * v + (1 - alpha) * d * d
 *   s = momentum * buf + d / (sqrt(b) + eps)
 *   v = b
 *   buf = s
 *   p = p - lr * s
 */

/*op rmsprop_centered_step(p!, v!, a!, g, lr) -> p  elementwise nograd
 * rmsprop_step that divides by the standard deviation of the gradient. a is the gradient's running
 * mean and starts at 0.
 *   alpha float = 0.99
 *   eps float = 1e-8
 *   weight_decay float = 0   times p, added to g
 *   l1 bool = false          the decay is times the sign of p
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * (l1 ? sign(p) : p)
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
 *   l1 bool = false          the decay is times the sign of p
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * (l1 ? sign(p) : p)
 *   b = alpha * v + (1 - alpha) * d * d
 *   e = alpha * a + (1 - alpha) * d
 *   s = momentum * buf + d / (sqrt(b - e * e) + eps)
 *   v = b
 *   a = e
 *   buf = s
 *   p = p - lr * s
 */

/*op adagrad_step(p!, v!, g, lr) -> p  elementwise nograd
 * One step of AdaGrad. v is the sum of the gradient's squares.
 *   eps float = 1e-10
 *   weight_decay float = 0   times p, added to g
 *   l1 bool = false          the decay is times the sign of p
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * (l1 ? sign(p) : p)
 *   b = v + d * d
 *   v = b
 *   p = p - lr * d / (sqrt(b) + eps)
 */

/*op adadelta_step(p!, v!, u!, g, lr) -> p  elementwise nograd
 * One step of AdaDelta. v is the running mean of the gradient's square, u that of the square of the
 * steps before they are multiplied by lr; they start at 0.
 *   rho float = 0.9
 *   eps float = 1e-6
 *   weight_decay float = 0   times p, added to g
 *   l1 bool = false          the decay is times the sign of p
 *   maximize bool = false    goes up instead
 *   d = (maximize ? -g : g) + weight_decay * (l1 ? sign(p) : p)
 *   b = rho * v + (1 - rho) * d * d
 *   e = sqrt(u + eps) / sqrt(b + eps) * d
 *   v = b
 *   u = rho * u + (1 - rho) * e * e
 *   p = p - lr * e
 */

#include "ops/optimizer/optimizer.gen.h"
