/* zip_layout.h - the records of a ZIP archive, shared by zip.c and zip_write.c.
 *
 *     local header, contents       for each entry
 *     directory entry              for each entry
 *     Zip64 end, Zip64 locator     if a number below does not fit its field
 *     end                          the number of entries and the position of the directory
 *
 * A field that is too small for its number is all ones; the number is then in an extra field of
 * the entry, or in the Zip64 end.
 */
#ifndef GRADUS_FORMAT_ZIP_LAYOUT_H
#define GRADUS_FORMAT_ZIP_LAYOUT_H

enum {
    LOCAL_BYTES = 30,
    DIRECTORY_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,

    LOCAL_SIGNATURE = 0x04034b50,
    DIRECTORY_SIGNATURE = 0x02014b50,
    END_SIGNATURE = 0x06054b50,
    END64_SIGNATURE = 0x06064b50,
    LOCATOR_SIGNATURE = 0x07064b50,

    EXTRA_ZIP64 = 0x0001,

    METHOD_STORED = 0,
    METHOD_DEFLATED = 8,

    FLAG_ENCRYPTED = 1 << 0,
    FLAG_UTF8 = 1 << 11,

    VERSION_PLAIN = 20,
    VERSION_ZIP64 = 45,
};

#endif
