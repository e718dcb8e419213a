# libjpeg and libpng, which decode JPEG and PNG images. The library builds without them; loading such
# an image then fails with a message.
#
# Sets IMAGE_TARGETS and IMAGE_DEFINITIONS for building, and GRADUS_HAS_JPEG and GRADUS_HAS_PNG.
set(GRADUS_JPEG AUTO CACHE STRING "Read JPEG images with libjpeg: AUTO (if it is found), ON or OFF")
set(GRADUS_PNG AUTO CACHE STRING "Read PNG images with libpng: AUTO (if it is found), ON or OFF")
set(IMAGE_TARGETS)
set(IMAGE_DEFINITIONS)
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
    list(APPEND IMAGE_TARGETS ${library}::${library})
    list(APPEND IMAGE_DEFINITIONS GD_HAVE_${library})
  endif()
endforeach()
