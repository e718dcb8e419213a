/* lmdb_check.c - see lmdb_check.h. Files are those of LMDB 0.9 on machines with 64 bits.
 *
 * A page begins with its number (8 bytes), 2 unused bytes, flags (2), and the ends of its table of
 * nodes and of its free space (2 each). The table has the offset of each node (2). A node has 4
 * bytes of numbers, flags (2), the size of the key (2), the key, and the value. In a branch page
 * numbers and flags are the number of a page below; in a leaf page the numbers are the size of the
 * value, and a flag says that the value has pages of its own, whose number is in its place. */
#include "format/lmdb_check.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/error.h"
#include "format/bytes.h"

enum { PAGE_HEAD = 16, NODE_HEAD = 8, META_BYTES = 136 };
enum { PAGE_BRANCH = 1, PAGE_LEAF = 2, PAGE_META = 8 };          /* flags of pages, */
enum { NODE_LARGE = 1, NODE_DATABASE = 2, NODE_VALUES = 4 };     /* of nodes, */
enum { REVERSED_KEYS = 2, SORTED_VALUES = 4, INTEGER_KEYS = 8 }; /* and of a database */
enum { MAX_DEPTH = 32, MIN_PAGE = 256, MAX_PAGE = 65536, MAX_KEY = 511 };
#define NO_PAGE UINT64_MAX
static const uint32_t magic = 0xBEEFC0DE;

static gd_status read_bytes(const char *path, int file, uint64_t offset, void *to, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pread(file, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return gd_fail(GD_E_IO, "%s: cannot be read: %s", path, strerror(errno));
        if (n == 0)
            return gd_fail(GD_E_FORMAT, "%s: ends at byte %llu; is it cut off?", path,
                           (unsigned long long)(offset + done));
        done += (size_t)n;
    }
    return GD_OK;
}

/* --- meta pages ------------------------------------------------------------------------------- */

/* Reads the meta page at `offset`. */
static gd_status read_meta(const char *path, int file, uint64_t offset, gd_lmdb_meta *meta) {
    uint8_t page[PAGE_HEAD + META_BYTES];
    GD_TRY(read_bytes(path, file, offset, page, sizeof page));
    const uint8_t *p = page + PAGE_HEAD, *records = p + 24 + 48;
    if (!(gd_get_u16(page + 10) & PAGE_META) || gd_get_u32(p) != magic)
        return gd_fail(GD_E_FORMAT, "%s: is no LMDB file: a wrong number at byte %llu", path,
                       (unsigned long long)offset + PAGE_HEAD);
    if (gd_get_u32(p + 4) != 1)
        return gd_fail(GD_E_UNSUPPORTED, "%s: is an LMDB file of version %u; version 1 is read",
                       path, gd_get_u32(p + 4));
    const unsigned flags = gd_get_u16(records + 4);
    *meta = (gd_lmdb_meta){.page_bytes = gd_get_u32(p + 24),
                           .depth = gd_get_u16(records + 6),
                           .records = gd_get_u64(records + 32),
                           .root = gd_get_u64(records + 40),
                           .last_page = gd_get_u64(p + 120),
                           .transaction = gd_get_u64(p + 128)};
    const uint32_t size = meta->page_bytes;
    if (size < MIN_PAGE || size > MAX_PAGE || (size & (size - 1)))
        return gd_fail(GD_E_FORMAT, "%s: damaged: pages of %u bytes", path, size);
    if (flags & ~(unsigned)(REVERSED_KEYS | INTEGER_KEYS))
        return gd_fail(GD_E_UNSUPPORTED, "%s: has %s, which are not read", path,
                       flags & SORTED_VALUES ? "several values for a key" : "unknown flags");
    return GD_OK;
}

/* What is wrong with a meta page of a file with `pages` pages; NULL: nothing. */
static const char *wrong_meta(const gd_lmdb_meta *m, uint64_t pages) {
    if (m->depth > MAX_DEPTH) return "too deep";
    if ((m->root == NO_PAGE) != (m->depth == 0) || (m->records == 0) != (m->depth == 0))
        return "depth, root and number of records contradict each other";
    if (m->depth > 0 && (m->root < 2 || m->root >= pages)) return "its root is beyond its end";
    /* liblmdb maps this many pages; a page has at least 256 bytes */
    if (m->last_page > UINT64_MAX >> 20 || m->records > (uint64_t)INT64_MAX >> 1)
        return "its sizes are too large";
    return NULL;
}

/* Reads both meta pages; *bytes is the size of the file. */
static gd_status read_head(const char *path, int file, gd_lmdb_meta meta[2], uint64_t *bytes) {
    struct stat info;
    if (fstat(file, &info) != 0)
        return gd_fail(GD_E_IO, "%s: cannot be read: %s", path, strerror(errno));
    *bytes = (uint64_t)info.st_size;
    GD_TRY(read_meta(path, file, 0, &meta[0]));
    GD_TRY(read_meta(path, file, meta[0].page_bytes, &meta[1]));
    for (int i = 0; i < 2; i++) {
        const char *wrong = meta[i].page_bytes != meta[0].page_bytes
                                ? "its two heads have different sizes of pages"
                                : wrong_meta(&meta[i], *bytes / meta[0].page_bytes);
        if (wrong) return gd_fail(GD_E_FORMAT, "%s: damaged: %s", path, wrong);
    }
    return GD_OK;
}

gd_status gd_lmdb_check_head(const char *path, int file, uint64_t *bytes) {
    gd_lmdb_meta meta[2];
    return read_head(path, file, meta, bytes);
}

/* --- the tree --------------------------------------------------------------------------------- */

typedef struct tree {
    const char *path;
    int file;
    uint64_t pages; /* in the file */
    size_t page_bytes;
    unsigned depth;
    uint64_t visited, leaves, records;
    uint8_t *buffer; /* a page for each level */
} tree;

static gd_status fail_page(const tree *t, uint64_t page, const char *wrong) {
    return gd_fail(GD_E_FORMAT, "%s: damaged at byte %llu: %s", t->path,
                   (unsigned long long)(page * t->page_bytes), wrong);
}

/* The address of node i of a page; NULL: it is not inside of the page. */
static const uint8_t *find_node(const tree *t, const uint8_t *page, int i) {
    const size_t at = gd_get_u16(page + PAGE_HEAD + 2 * i), end = gd_get_u16(page + 14);
    if (at < end || at % 2 || at + NODE_HEAD > t->page_bytes) return NULL;
    const uint8_t *node = page + at;
    const size_t key = gd_get_u16(node + 6);
    return key <= MAX_KEY && at + NODE_HEAD + key <= t->page_bytes ? node : NULL;
}

/* What is wrong with a node of a leaf page; NULL: nothing. */
static const char *wrong_record(const tree *t, const uint8_t *page, const uint8_t *node) {
    const unsigned flags = gd_get_u16(node + 4);
    const size_t bytes = gd_get_u32(node), key = gd_get_u16(node + 6);
    const size_t room = t->page_bytes - (size_t)(node - page) - NODE_HEAD - key;
    if (flags & ~(unsigned)NODE_LARGE) return "a record of an unknown kind";
    if (key == 0) return "a record without a key";
    if (!(flags & NODE_LARGE)) return bytes <= room ? NULL : "a value longer than its page";
    if (room < 8) return "a record longer than its page";
    const uint64_t first = gd_get_u64(node + NODE_HEAD + key),
                   count = (PAGE_HEAD + bytes - 1) / t->page_bytes + 1;
    return first >= 2 && first < t->pages && count <= t->pages - first
               ? NULL
               : "a value beyond the end of the file; is it cut off?";
}

static gd_status check_leaf(tree *t, const uint8_t *page, uint64_t number, int nodes) {
    for (int i = 0; i < nodes; i++) {
        const uint8_t *node = find_node(t, page, i);
        if (node && gd_get_u16(node + 4) & NODE_DATABASE)
            return gd_fail(GD_E_UNSUPPORTED, "%s: has named databases, which are not read",
                           t->path);
        const char *wrong = node ? wrong_record(t, page, node) : "a record outside of its page";
        if (wrong) return fail_page(t, number, wrong);
    }
    t->records += (uint64_t)nodes;
    return GD_OK;
}

static gd_status check_page(tree *t, uint64_t number, unsigned level);

static gd_status check_branch(tree *t, const uint8_t *page, uint64_t number, int nodes,
                              unsigned level) {
    if (nodes < 2) return fail_page(t, number, "a branch with less than two pages");
    for (int i = 0; i < nodes; i++) {
        const uint8_t *node = find_node(t, page, i);
        if (!node) return fail_page(t, number, "a branch outside of its page");
        const uint64_t below = gd_get_u32(node) | (uint64_t)gd_get_u16(node + 4) << 32;
        if (below < 2 || below >= t->pages)
            return fail_page(t, number, "a page beyond the end of the file; is it cut off?");
        GD_TRY(check_page(t, below, level + 1));
    }
    return GD_OK;
}

/* `number` is that of a page of the file. */
static gd_status check_page(tree *t, uint64_t number, unsigned level) {
    const bool is_leaf = level + 1 == t->depth;
    uint8_t *page = t->buffer + level * t->page_bytes;
    if (++t->visited > t->pages) return fail_page(t, number, "pages that refer to each other");
    if (is_leaf && ++t->leaves > GD_LMDB_CHECKED_LEAVES) return GD_OK;
    GD_TRY(read_bytes(t->path, t->file, number * t->page_bytes, page, t->page_bytes));
    const unsigned flags = gd_get_u16(page + 10), low = gd_get_u16(page + 12),
                   high = gd_get_u16(page + 14);
    if (gd_get_u64(page) != number) return fail_page(t, number, "a page with another number");
    if (flags != (is_leaf ? PAGE_LEAF : PAGE_BRANCH))
        return fail_page(t, number, is_leaf ? "no leaf page" : "no branch page");
    if (low <= PAGE_HEAD || low % 2 || low > high || high > t->page_bytes)
        return fail_page(t, number, "a page whose sizes contradict each other");
    const int nodes = (int)(low - PAGE_HEAD) / 2;
    return is_leaf ? check_leaf(t, page, number, nodes)
                   : check_branch(t, page, number, nodes, level);
}

static gd_status check_tree(tree *t, const gd_lmdb_meta *m) {
    if (m->depth == 0) return GD_OK;
    GD_TRY(check_page(t, m->root, 0));
    if (t->leaves > GD_LMDB_CHECKED_LEAVES) {
        if (m->last_page < t->pages) return GD_OK;
        return gd_fail(GD_E_FORMAT, "%s: has %llu pages, and its head says %llu; is it cut off?",
                       t->path, (unsigned long long)t->pages, (unsigned long long)m->last_page + 1);
    }
    if (t->records == m->records) return GD_OK;
    return gd_fail(GD_E_FORMAT, "%s: damaged: has %llu records, and its head says %llu", t->path,
                   (unsigned long long)t->records, (unsigned long long)m->records);
}

gd_status gd_lmdb_check_tree(const char *path, int file, uint64_t number) {
    gd_lmdb_meta meta[2];
    uint64_t bytes;
    GD_TRY(read_head(path, file, meta, &bytes));
    const gd_lmdb_meta *m = &meta[meta[1].transaction == number];
    if (m->transaction != number)
        return gd_fail(GD_E_IO, "%s: was changed while it was opened; try it again", path);
    tree t = {.path = path,
              .file = file,
              .page_bytes = m->page_bytes,
              .pages = bytes / m->page_bytes,
              .depth = m->depth};
    t.buffer = gd_malloc((size_t)(m->depth + 1) * t.page_bytes);
    if (!t.buffer) return gd_no_memory(path, "to check it");
    const gd_status status = check_tree(&t, m);
    gd_free(t.buffer);
    return status;
}
