# Rewrites or checks the counts that README.md and the pages of docs/ mark like this: <!--count:ops-->246<!---->
#
#   cmake -DSOURCE=. -DGEN=build/gen [-DCHECK=ON] -P cmake/counts.cmake
#
# The counts are:
#   - the lines of GEN/counts.txt, which the generator writes: ops, layers, optimizers, ...
#   - op_cases and layer_cases: the cases in tests/cases and tests/cases/nn
#   - comparisons: the results of PyTorch in tests/golden
file(STRINGS ${GEN}/counts.txt lines)
foreach(line ${lines})
  string(REGEX MATCH "^([a-z_]+) ([0-9]+)$" matched "${line}")
  set(count_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
endforeach()

# The number of lines `case ...` in the files of a folder.
function(count_cases folder variable)
  set(total 0)
  file(GLOB files ${folder}/*.txt)
  foreach(file ${files})
    file(STRINGS ${file} cases REGEX "^case ")
    list(LENGTH cases n)
    math(EXPR total "${total} + ${n}")
  endforeach()
  set(${variable} ${total} PARENT_SCOPE)
endfunction()
count_cases(${SOURCE}/tests/cases count_op_cases)
count_cases(${SOURCE}/tests/cases/nn count_layer_cases)

# A golden file is "GDGOLD01" and the number of its results (u32, little-endian).
set(count_comparisons 0)
file(GLOB files ${SOURCE}/tests/golden/*.bin)
foreach(file ${files})
  file(READ ${file} head LIMIT 12 HEX)
  if(head MATCHES "^4744474f4c443031(..)(..)(..)(..)$")
    math(EXPR count_comparisons
      "${count_comparisons} + 0x${CMAKE_MATCH_4}${CMAKE_MATCH_3}${CMAKE_MATCH_2}${CMAKE_MATCH_1}")
  endif()
endforeach()

set(pattern "<!--count:([a-z_]+)-->([0-9]*)<!---->")
# Rewrites or checks the counts of a page, and adds their number to `marked`.
function(update_page page)
  file(READ ${page} text)
  string(REGEX MATCHALL "${pattern}" marks "${text}")
  set(current "${text}")
  set(stale "")
  foreach(mark ${marks})
    string(REGEX MATCH "${pattern}" matched "${mark}")
    set(name ${CMAKE_MATCH_1})
    set(value "${CMAKE_MATCH_2}")
    if(NOT DEFINED count_${name})
      message(FATAL_ERROR "${page}: there is no count '${name}'")
    endif()
    if(NOT value STREQUAL count_${name})
      string(APPEND stale "  ${name} is ${count_${name}}, and the page has ${value}\n")
      string(REPLACE "${mark}" "<!--count:${name}-->${count_${name}}<!---->" current "${current}")
    endif()
  endforeach()
  if(CHECK AND stale)
    message(FATAL_ERROR "${page} has stale counts; `make docs` rewrites them:\n${stale}")
  elseif(stale)
    file(WRITE ${page} "${current}")
  endif()
  list(LENGTH marks count)
  math(EXPR count "${marked} + ${count}")
  set(marked ${count} PARENT_SCOPE)
endfunction()

set(marked 0)
file(GLOB pages ${SOURCE}/README.md ${SOURCE}/docs/*.md ${SOURCE}/docs/guide/*.md)
foreach(page ${pages})
  update_page(${page})
endforeach()
if(marked EQUAL 0)
  message(FATAL_ERROR "no page has a marked count such as <!--count:ops-->1<!---->")
endif()
