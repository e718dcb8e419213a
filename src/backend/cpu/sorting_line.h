/* sorting_line.h - sorts items, and finds the smallest ones; included once for each kind of item.
 *
 * The includer defines
 *   ITEM          the type of an item, which holds a key and its position
 *   KEY(item)     its key, an unsigned number
 *   LESS(a, b)    by key, then by position: no two items are equal
 *   NAME(name)    the name of a function for this kind
 */

/* Short lines: insertion. */
static void NAME(sort_few)(ITEM *items, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        ITEM item = items[i];
        int64_t at = i;
        for (; at > 0 && LESS(item, items[at - 1]); at--) items[at] = items[at - 1];
        items[at] = item;
    }
}

/* By the bytes of the key, the lowest first; each pass keeps the order of the one before. Items with
 * equal keys come in the order of their positions. The result is in `items` or in `spare`, which has as much room. */
static ITEM *NAME(sort)(ITEM *items, ITEM *spare, int64_t n, int key_bytes) {
    uint32_t counts[8][256];
    if (n < 64) {
        NAME(sort_few)(items, n);
        return items;
    }
    memset(counts, 0, (size_t)key_bytes * sizeof counts[0]);
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < key_bytes; b++) counts[b][KEY(items[i]) >> 8 * b & 255]++;
    for (int b = 0; b < key_bytes; b++) {
        uint32_t at = 0, *count = counts[b];
        if (count[KEY(items[0]) >> 8 * b & 255] == n) continue; /* the same in all */
        for (int i = 0; i < 256; i++) {
            uint32_t c = count[i];
            count[i] = at;
            at += c;
        }
        for (int64_t i = 0; i < n; i++) spare[count[KEY(items[i]) >> 8 * b & 255]++] = items[i];
        ITEM *t = items;
        items = spare;
        spare = t;
    }
    return items;
}

/* Adds one item to the k smallest so far. `kept` has room for 2k and `*count` of them; when it is
 * full it is sorted and the larger half dropped, and from then on only what is below the k-th gets
 * in. Items are offered in the order of their positions: what is added stands behind all equal keys
 * that are there. */
static void NAME(offer)(ITEM *kept, ITEM *spare, int64_t *count, int64_t k, int64_t room, int key_bytes, ITEM item,
                        ITEM *limit, bool *limited) {
    if (*limited && !LESS(item, *limit)) return;
    kept[(*count)++] = item;
    if (*count < room) return;
    ITEM *sorted = NAME(sort)(kept, spare, *count, key_bytes);
    if (sorted != kept) memcpy(kept, sorted, (size_t)k * sizeof *kept);
    *count = k;
    *limit = kept[k - 1];
    *limited = true;
}
