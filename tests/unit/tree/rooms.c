/* rooms.c - the folders of src/ and their order. */
#include "rooms.h"

int find_name(const name_list *list, const char *text, size_t length) {
    for (int i = 0; i < list->count; i++)
        if (strlen(list->at[i]) == length && memcmp(list->at[i], text, length) == 0) return i;
    return -1;
}

static int add_name(name_list *list, const char *text, size_t length) {
    const int known = find_name(list, text, length);
    if (known >= 0) return known;
    CHECK(list->count < MAX_NAMES && length < NAME_BYTES);
    if (list->count == MAX_NAMES || length >= NAME_BYTES) return 0;
    memcpy(list->at[list->count], text, length);
    return list->count++;
}

/* --- the table -------------------------------------------------------------------------------- */

name_list rooms, stages[MAX_NAMES], families, kinds;

/* A row that has stages names them behind "by stage:", as `build/`. */
static void read_stages(const char *row, size_t length, name_list *list) {
    const char *end = row + length, *at = strstr(row, "by stage:");
    while (at && at < end && (at = strchr(at, '`')) && at < end) {
        const size_t name_length = strcspn(++at, "/`");
        if (at[name_length] == '/' && at[name_length + 1] == '`') add_name(list, at, name_length);
        at += strcspn(at, "`") + 1;
    }
}

/* The rows of src/ begin with "| `src/ROOM/". */
void read_table(void) {
    static const char begin[] = "| `src/";
    char *page = rooms.count ? NULL : read_file(GRADUS_SOURCE "/ARCHITECTURE.md");
    for (const char *row = page; row && *row; row += strcspn(row, "\n"), row += *row == '\n') {
        if (strncmp(row, begin, strlen(begin)) != 0) continue;
        const char *room = row + strlen(begin);
        read_stages(row, strcspn(row, "\n"), &stages[add_name(&rooms, room, strcspn(room, "/`"))]);
    }
    CHECK(rooms.count > 10 && find_name(&rooms, "core", 4) == 0);
    free(page);
}

/* --- places ----------------------------------------------------------------------------------- */

size_t folder_at(const char *path, int depth, const char **at) {
    for (*at = path; depth > 0 && *at; depth--) {
        *at = strchr(*at, '/');
        if (*at) ++*at;
    }
    return *at && strchr(*at, '/') ? strcspn(*at, "/") : 0;
}

bool is_room(int room, const char *text) { return room >= 0 && strcmp(rooms.at[room], text) == 0; }

place place_of(const char *path) {
    const char *at;
    size_t length = folder_at(path, 0, &at);
    place p = {length ? find_name(&rooms, at, length) : -1, -1, -1, -1, -1};
    if (p.room < 0) return p;
    p.order = p.room;
    if ((length = folder_at(path, 1, &at))) {
        p.stage = find_name(&stages[p.room], at, length);
        if (is_room(p.room, "backend")) {
            p.kind = add_name(&kinds, at, length);
            const int ops = find_name(&rooms, "ops", 3);
            if (strcmp(kinds.at[p.kind], "test") == 0 && ops > p.room) p.order = ops;
        }
        if (is_room(p.room, "ops")) p.family = add_name(&families, at, length);
    }
    if (p.family >= 0 && (length = folder_at(path, 2, &at))) p.kind = add_name(&kinds, at, length);
    return p;
}

const char *place_text(place p, char text[200]) {
    snprintf(text, 200, "src/%s%s%s%s%s", rooms.at[p.room],
             p.stage >= 0 || p.family >= 0 ? "/" : "",
             p.stage >= 0    ? stages[p.room].at[p.stage]
             : p.family >= 0 ? families.at[p.family]
                             : "",
             p.kind >= 0 ? "/" : "", p.kind >= 0 ? kinds.at[p.kind] : "");
    return text;
}

bool is_later(place p, place than) {
    return p.order > than.order || (p.room == than.room && p.stage > than.stage);
}

/* --- families --------------------------------------------------------------------------------- */

bool reaches[MAX_NAMES][MAX_NAMES];

void close_families(void) {
    for (int k = 0; k < families.count; k++)
        for (int i = 0; i < families.count; i++)
            for (int j = 0; j < families.count; j++)
                reaches[i][j] |= reaches[i][k] && reaches[k][j];
}
