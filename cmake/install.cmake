# `cmake --install` installs both libraries, the headers (including the generated ones), gradus.pc for
# pkg-config, and a package for find_package(gradus).
include(CMakePackageConfigHelpers)

install(TARGETS gradus gradus_static EXPORT gradusTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
# The device of the tests, for `cmake --install --component testing`.
install(TARGETS gradus_backend_test LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/gradus COMPONENT testing EXCLUDE_FROM_ALL)
install(DIRECTORY include/gradus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${GEN}/gradus/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradus FILES_MATCHING PATTERN "*.h")

# The libraries of images, with what they need themselves in a static program. They are listed in
# Libs.private, not required as packages: programs with the shared library need none of their files.
set(GRADUS_IMAGE_PACKAGES "")
set(GRADUS_PC_IMAGES "")
find_package(PkgConfig QUIET)
function(add_image_library library package usual)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(GRADUS_PC_${library} QUIET ${package})
    if(GRADUS_PC_${library}_FOUND)
      list(TRANSFORM GRADUS_PC_${library}_STATIC_LIBRARIES PREPEND "-l" OUTPUT_VARIABLE usual)
    endif()
  endif()
  list(JOIN usual " " flags)
  set(GRADUS_PC_IMAGES "${GRADUS_PC_IMAGES} ${flags}" PARENT_SCOPE)
  set(GRADUS_IMAGE_PACKAGES "${GRADUS_IMAGE_PACKAGES}${library} " PARENT_SCOPE)
endfunction()
if(GRADUS_HAS_JPEG)
  add_image_library(JPEG libjpeg "-ljpeg")
endif()
if(GRADUS_HAS_PNG)
  add_image_library(PNG libpng "-lpng;-lz;-lm")
endif()
set(GRADUS_PC_LMDB "")
if(GRADUS_HAS_LMDB)
  set(GRADUS_PC_LMDB " -llmdb")
endif()

set(GRADUS_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/gradus)
configure_package_config_file(cmake/gradusConfig.cmake.in ${CMAKE_BINARY_DIR}/gradusConfig.cmake
  INSTALL_DESTINATION ${GRADUS_CMAKE_DIR})
# Before 1.0 a minor version may break programs (CONTRIBUTING.md), so find_package accepts only the
# same minor version.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/gradusConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/gradusConfig.cmake ${CMAKE_BINARY_DIR}/gradusConfigVersion.cmake
  DESTINATION ${GRADUS_CMAKE_DIR})
install(EXPORT gradusTargets NAMESPACE gradus:: DESTINATION ${GRADUS_CMAKE_DIR})

# gradus.pc is written at install time: `cmake --install --prefix` may set another prefix than the
# configuration.
foreach(kind LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${kind}}")
    set(GRADUS_PC_${kind} "${CMAKE_INSTALL_${kind}}")
  else()
    set(GRADUS_PC_${kind} "\${prefix}/${CMAKE_INSTALL_${kind}}")
  endif()
endforeach()
install(CODE "
  set(PROJECT_DESCRIPTION \"${PROJECT_DESCRIPTION}\")
  set(PROJECT_VERSION ${PROJECT_VERSION})
  set(GRADUS_PC_IMAGES [[${GRADUS_PC_IMAGES}]])
  set(GRADUS_PC_LMDB [[${GRADUS_PC_LMDB}]])
  set(GRADUS_PC_LIBDIR [[${GRADUS_PC_LIBDIR}]])
  set(GRADUS_PC_INCLUDEDIR [[${GRADUS_PC_INCLUDEDIR}]])
  get_filename_component(CMAKE_INSTALL_PREFIX \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
  configure_file([[${CMAKE_SOURCE_DIR}/cmake/gradus.pc.in]] [[${CMAKE_BINARY_DIR}/gradus.pc]] @ONLY)
")
install(FILES ${CMAKE_BINARY_DIR}/gradus.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
