/* layers_activation.c - activations, which have no weights. */
#include "gradus/layers.h"
#include "nn/layer.h"

/*layer relu(x) -> y  of relu
 * max(x, 0).
 */

/*layer tanh(x) -> y  of tanh
 * Hyperbolic tangent.
 */

#include "layers_activation.gen.h"
