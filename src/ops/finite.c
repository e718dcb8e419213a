/* finite.c - a check of values in a plan: a run whose values fail it changes nothing. */
#include <math.h>

#include "ops/kernel.h"

/*op check_finite(x) -> y  nograd refuses internal
 * x itself. Fails where an element is infinite or NaN.
 *   saves nothing
 */
