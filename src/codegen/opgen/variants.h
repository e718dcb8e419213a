/* variants.h - one text for several records, such as those of conv1d, conv2d and conv3d.
 *
 *     conv{1,2,3}d(x, w, b?) -> y
 *     {}-d convolution: x (N,C,{L|H,W|D,H,W}) ...
 *       stride int[{}] = 1
 *       onnx Conv
 *
 * A name with a list in braces defines one record for each entry. After the name, {} is replaced by
 * the entry, and {a|b|c} by the alternative for the entry. Other braces, such as the words of an
 * option, stay unchanged.
 */
#ifndef GRADUS_CODEGEN_OPGEN_VARIANTS_H
#define GRADUS_CODEGEN_OPGEN_VARIANTS_H

#include <stddef.h>

/* The number of records: the entries of the list in the name, or 1 without a list. */
int variant_count(const char *text);

/* The text of variant k, in new memory. NULL: a brace is not closed, or the number of alternatives
 * differs from that of variants; *at is the position in the text. */
char *variant_text(const char *text, int k, const char **at);

/* Entry k of the list, as a number: 2 for variant 1 of conv{1,2,3}d. 0: there is no list. */
int variant_number(const char *text, int k);

/* The name that the rules of all variants begin with: "convNd" for conv{1,2,3}d. */
void variant_rules_name(const char *text, char *name, size_t size);

#endif
