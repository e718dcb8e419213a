/* sort_line.h - sorts items and finds the smallest ones; included once for each kind of item.
 *
 * The including file defines
 *   ITEM          the type of an item, which holds a key and its position
 *   KEY(item)     its key, an unsigned integer of type KEY_TYPE
 *   LESS(a, b)    compares by key, then by position: no two items are equal
 *   NAME(name)    forms a function name for this kind
 */

/* For short lines. */
static void NAME(insertion_sort)(ITEM *items, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        ITEM item = items[i];
        int64_t at = i;
        for (; at > 0 && LESS(item, items[at - 1]); at--) items[at] = items[at - 1];
        items[at] = item;
    }
}

/* LSD radix sort by the bytes of the key. It is stable, so items with equal keys stay in the order
 * of their positions. The result is in `items` or in `buffer`, which has the same size. */
static ITEM *NAME(radix_sort)(ITEM *items, ITEM *buffer, int64_t n, int key_bytes) {
    uint32_t counts[8][256];
    if (n < 64) {
        NAME(insertion_sort)(items, n);
        return items;
    }
    memset(counts, 0, (size_t)key_bytes * sizeof counts[0]);
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < key_bytes; b++) counts[b][KEY(items[i]) >> 8 * b & 255]++;
    for (int b = 0; b < key_bytes; b++) {
        uint32_t at = 0, *count = counts[b];
        if (count[KEY(items[0]) >> 8 * b & 255] == n) continue; /* all items have the same byte */
        for (int i = 0; i < 256; i++) {
            uint32_t c = count[i];
            count[i] = at;
            at += c;
        }
        for (int64_t i = 0; i < n; i++) buffer[count[KEY(items[i]) >> 8 * b & 255]++] = items[i];
        ITEM *t = items;
        items = buffer;
        buffer = t;
    }
    return items;
}

/* Keeps the k smallest of `*count` items, sorted. Items that are added later come after all equal
 * keys. Returns the largest key that was kept. */
static KEY_TYPE NAME(keep_smallest)(ITEM *kept, ITEM *buffer, int64_t *count, int64_t k,
                                    int key_bytes) {
    ITEM *sorted = NAME(radix_sort)(kept, buffer, *count, key_bytes);
    if (sorted != kept) memcpy(kept, sorted, (size_t)k * sizeof *kept);
    *count = k;
    return KEY(kept[k - 1]);
}
