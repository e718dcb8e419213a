/* variants.h - one record text for several records, such as those of conv1d, conv2d and conv3d.
 *
 *     conv{1,2,3}d(x, w, b?) -> y
 *     {}-d convolution: x (N,C,{L|H,W|D,H,W}) ...
 *       stride int[{}] = 1
 *       onnx Conv   {|caffe Convolution|}
 *
 * A list in braces in the name makes the text a text of variants. Behind the name, {} is the
 * variant's entry of that list and {a|b|c} the variant's alternative. Other braces, such as the
 * words of an option, stay as they are.
 */
#ifndef GRADUS_OPGEN_VARIANTS_H
#define GRADUS_OPGEN_VARIANTS_H

#include <stddef.h>

/* How many records the text has: the entries of the list in its name, or 1 without one. */
int variant_count(const char *text);

/* The text of variant k, in new memory. NULL: braces without end, or not as many alternatives as
 * variants; *at is then where in the text. */
char *variant_text(const char *text, int k, const char **at);

/* Entry k of the list, as a number: 2 for variant 1 of conv{1,2,3}d. 0: there is no list. */
int variant_number(const char *text, int k);

/* The name that the rules of all variants begin with: "convNd" for conv{1,2,3}d. */
void variant_rules_name(const char *text, char *name, size_t size);

#endif
