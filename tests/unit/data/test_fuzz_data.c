/* test_fuzz_data.c - the short form of the fuzz targets for data files; see test_fuzz.c. */
#include "fuzz/damage.h"
#include "clean_test.h"
#include "data_files.h"
#include "gradus/gradus.h"

#define LLVMFuzzerTestOneInput fuzz_gzip
#include "fuzz/fuzz_gzip.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_idx
#include "fuzz/fuzz_idx.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_cifar
#include "fuzz/fuzz_cifar.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_csv
#include "fuzz/fuzz_csv.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_image
#include "fuzz/fuzz_image.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_text
#include "fuzz/fuzz_text.c"
#undef LLVMFuzzerTestOneInput

CLEAN_TEST(damaged_gzip_files_fail_or_are_read_completely) {
    size_t size;
    uint8_t text[2000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (uint8_t)(i * i % 251 & 31);
    uint8_t *file = test_gzip(text, 300, &size);
    run_cut(fuzz_gzip, file, size);
    run_damaged(fuzz_gzip, file, size, 3000);
    free(file);
    /* compressed data: a header of 10 bytes, then the output of gd_deflate */
    uint8_t packed_file[3000] = "\x1f\x8b\x08\0\0\0\0\0\0";
    packed_file[9] = 0xff;
    size = 10 + gd_deflate(packed_file + 10, text, sizeof text);
    gd_put_u32(packed_file + size, gd_crc32(0, text, sizeof text));
    gd_put_u32(packed_file + size + 4, sizeof text);
    run_damaged(fuzz_gzip, packed_file, size + 8, 3000);
}

CLEAN_TEST(damaged_idx_files_fail_or_are_read_completely) {
    const uint8_t file[] = {0, 0, 0x0B, 2, 0, 0, 0, 3, 0, 0,  0,  2,
                            1, 2, 3,    4, 5, 6, 7, 8, 9, 10, 11, 12};
    run_cut(fuzz_idx, file, sizeof file);
    run_damaged(fuzz_idx, file, sizeof file, 20000);
}

CLEAN_TEST(damaged_cifar_files_fail_or_are_read_completely) {
    static uint8_t file[2 * 3074] = {3};
    run_damaged(fuzz_cifar, file, 2 * 3073, 300);
    run_damaged(fuzz_cifar, file, 2 * 3074, 300);
}

CLEAN_TEST(damaged_csv_files_fail_or_are_read_completely) {
    static const char text[] = "a,\"b\"\"c\",d\r\n1,\"x\ny\",2.5\r\n, u ,NA\n-3e4,x,7\n";
    run_cut(fuzz_csv, text, sizeof text - 1);
    run_damaged(fuzz_csv, text, sizeof text - 1, 3000);
}

static void run_texts(fuzz_target run, const char *const *texts, int rounds) {
    for (; *texts; texts++) {
        run_cut(run, *texts, strlen(*texts));
        run_damaged(run, *texts, strlen(*texts), rounds);
    }
}

CLEAN_TEST(damaged_images_fail_or_are_read_completely) {
    static const char *const texts[] = {"P1 3 2\n101 0 1 0",
                                        "P2 2 2 9 1 2 # x\n 3 9",
                                        "P3 1 2 255 1 2 3 4 5 6",
                                        "P4 9 2 abcd",
                                        "P5 2 2 255 abcd",
                                        "P6 1 2 65535 abcdefghijkl",
                                        NULL};
    run_texts(fuzz_image, texts, 3000);
}

CLEAN_TEST(damaged_lists_and_texts_fail_or_are_read_completely) {
    static const char *const texts[] = {"a/b.jpg 1\nc d 2\n", "\xC3\xA4 \xE2\x82\xAC\n", NULL};
    run_texts(fuzz_text, texts, 500);
}

TEST_MAIN
