/* crc32.c - CRC-32 (polynomial 0xEDB88320, reflected) and CRC-32C (0x82F63B78), eight bytes a step.
 *
 * table[0][b] is the remainder of byte b, and table[k][b] that of b followed by k zero bytes. The
 * remainder of eight bytes is the sum (xor) of the remainders of each byte followed by zeros.
 */
#include "format/crc32.h"

#include "format/bytes.h"

#include <pthread.h>

typedef uint32_t crc_table[8][256];
static crc_table zip_table, castagnoli_table;

static void make_table(crc_table table, uint32_t polynomial) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t r = b;
        for (int bit = 0; bit < 8; bit++) r = r & 1 ? r >> 1 ^ polynomial : r >> 1;
        table[0][b] = r;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++)
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 0xFF];
}

static void make_tables(void) {
    make_table(zip_table, 0xEDB88320u);
    make_table(castagnoli_table, 0x82F63B78u);
}

static uint32_t extend_crc(const crc_table table, uint32_t crc, const void *data, size_t bytes) {
    const uint8_t *p = data;
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint32_t low = gd_get_u32(p) ^ crc, high = gd_get_u32(p + 4);
        crc = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^
              table[4][low >> 24] ^ table[3][high & 0xFF] ^ table[2][high >> 8 & 0xFF] ^
              table[1][high >> 16 & 0xFF] ^ table[0][high >> 24];
    }
    for (; bytes > 0; bytes--, p++) crc = crc >> 8 ^ table[0][(crc ^ *p) & 0xFF];
    return ~crc;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

uint32_t gd_crc32(uint32_t crc, const void *data, size_t bytes) {
    pthread_once(&once, make_tables);
    return extend_crc(zip_table, crc, data, bytes);
}

uint32_t gd_crc32c(uint32_t crc, const void *data, size_t bytes) {
    pthread_once(&once, make_tables);
    return extend_crc(castagnoli_table, crc, data, bytes);
}
