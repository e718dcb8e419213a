# libjpeg and libpng, which read JPEG and PNG pictures. The library builds without them; such files are
# then refused with a message.
#
# Sets PICTURE_TARGETS and PICTURE_DEFINITIONS for building, and GRADUS_HAS_JPEG and GRADUS_HAS_PNG.
set(GRADUS_JPEG AUTO CACHE STRING "Read JPEG pictures by libjpeg: AUTO (if it is there), ON or OFF")
set(GRADUS_PNG AUTO CACHE STRING "Read PNG pictures by libpng: AUTO (if it is there), ON or OFF")
set(PICTURE_TARGETS)
set(PICTURE_DEFINITIONS)
foreach(library JPEG PNG)
  set_property(CACHE GRADUS_${library} PROPERTY STRINGS AUTO ON OFF)
  set(GRADUS_HAS_${library} FALSE)
  if(GRADUS_${library} STREQUAL "AUTO")
    find_package(${library} QUIET)
  elseif(GRADUS_${library})
    find_package(${library} REQUIRED)
  endif()
  if(GRADUS_${library} AND ${library}_FOUND)
    set(GRADUS_HAS_${library} TRUE)
    list(APPEND PICTURE_TARGETS ${library}::${library})
    list(APPEND PICTURE_DEFINITIONS GD_HAVE_${library})
  endif()
endforeach()
