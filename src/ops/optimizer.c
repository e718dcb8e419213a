/* optimizer.c - the updates of optimizers: elementwise ops that write a parameter and its state.
 *
 * What changes from step to step (the learning rate, and what depends on the number of the step) is
 * a tensor of rank 0, so that a plan stays the same.
 */
#include "gradus/ops.h"
#include "ops/infer.h"

/*op sgd_step(p!, g, lr) -> p  elementwise nograd
 * One step of gradient descent: p minus lr times the gradient g.
 *   weight_decay float = 0   times p, added to g
 *   p = p - lr * (g + weight_decay * p)
 */

/*op momentum_step(p!, v!, g, lr) -> p  elementwise nograd
 * One step of gradient descent with momentum; v is the running sum of gradients, from 0.
 *   momentum float = 0.9
 *   dampening float = 0      of the gradient in the sum
 *   nesterov bool = false    looks one step ahead
 *   weight_decay float = 0   times p, added to g
 *   d = g + weight_decay * p
 *   s = momentum * v + (1 - dampening) * d
 *   v = s
 *   p = p - lr * (nesterov ? d + momentum * s : s)
 */

/*op adam_step(p!, m!, v!, g, step, root) -> p  elementwise nograd
 * One step of Adam; m and v are the running means of the gradient and of its square, from 0. In step
 * number t, `step` is lr / (1 - beta1^t) and `root` is sqrt(1 - beta2^t).
 *   beta1 float = 0.9
 *   beta2 float = 0.999
 *   eps float = 1e-8
 *   weight_decay float = 0   times p, added to g
 *   d = g + weight_decay * p
 *   a = beta1 * m + (1 - beta1) * d
 *   b = beta2 * v + (1 - beta2) * d * d
 *   m = a
 *   v = b
 *   p = p - step * a / (sqrt(b) / root + eps)
 */

#include "optimizer.gen.h"
