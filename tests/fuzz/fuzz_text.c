/* fuzz_text.c - reads any bytes as a list of images, and as a text of characters. */
#include "format/characters.h"
#include "format/image_list.h"

#include <stdlib.h>
#include <string.h>

static void read_list(const uint8_t *data, size_t size) {
    gd_stream *s;
    gd_image_list list;
    if (gd_stream_open_memory(&s, "fuzz", data, size) != GD_OK) return;
    if (gd_image_list_read(&list, s) == GD_OK) {
        for (int64_t i = 0; i < list.count; i++)
            if (!*list.lines[i].path || !*list.lines[i].label || list.lines[i].line < 1) abort();
        gd_image_list_free(&list);
    }
    gd_stream_close(s);
}

static void read_characters(const uint8_t *data, size_t size) {
    gd_characters c;
    const char *text = (const char *)data;
    if (size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) text += 3, size -= 3;
    if (size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) return;
    if (gd_characters_read(&c, "fuzz", text, size) != GD_OK) return;
    for (int64_t i = 0; i < c.count; i++) { /* each number prints as its bytes in the text */
        uint32_t number = 0;
        char printed[5];
        memcpy(&number, c.numbers + i * c.itemsize, (size_t)c.itemsize);
        if (number >= c.n_vocabulary) abort();
        gd_character_print(c.vocabulary[number], printed);
        const size_t length = *printed ? strlen(printed) : 1;
        if (memcmp(text, printed, length) != 0) abort();
        text += length;
    }
    gd_characters_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_list(data, size);
    read_characters(data, size);
    return 0;
}
