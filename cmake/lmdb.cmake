# liblmdb, which reads and writes LMDB databases. The library builds without it; opening a database
# then fails with a message.
#
# Sets GRADUS_HAS_LMDB, LMDB_INCLUDE_DIR, and LMDB_LINK for target_link_libraries.
set(GRADUS_LMDB AUTO CACHE STRING "Read LMDB databases with liblmdb: AUTO (if it is found), ON or OFF")
set_property(CACHE GRADUS_LMDB PROPERTY STRINGS AUTO ON OFF)
set(GRADUS_HAS_LMDB FALSE)
set(LMDB_LINK)
if(GRADUS_LMDB)
  find_path(LMDB_INCLUDE_DIR lmdb.h)
  find_library(LMDB_LIBRARY lmdb)
  mark_as_advanced(LMDB_INCLUDE_DIR LMDB_LIBRARY)
  if(LMDB_INCLUDE_DIR AND LMDB_LIBRARY)
    set(GRADUS_HAS_LMDB TRUE)
    set(LMDB_LINK $<BUILD_INTERFACE:${LMDB_LIBRARY}> $<INSTALL_INTERFACE:lmdb>)
  elseif(NOT GRADUS_LMDB STREQUAL "AUTO")
    message(FATAL_ERROR "GRADUS_LMDB is ON, and liblmdb was not found: install liblmdb-dev")
  endif()
endif()
