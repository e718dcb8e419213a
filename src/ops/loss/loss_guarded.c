/* loss_guarded.c - guards against zeros as Caffe has them: the guard changes the value or the gradient, not
 * both.
 */
#include "dispatch/call.h"
#include "gradus/ops.h"

/*op floored(x, least:float) -> y  elementwise internal
 * max(x, least), with the gradient of x: gradients also reach elements that are smaller.
 *   y  = x < least ? least : x
 *   gx = gy
 */

/*op damped_sqrt(x, eps:float) -> y  elementwise internal
 * The square root of x, with a gradient that is finite at 0: gy / (2 (sqrt(x) + eps)).
 *   y  = sqrt(x)
 *   gx = gy / (2 * (y + eps))
 */

#include "ops/loss/loss_guarded.gen.h"
