# The kinds of targets the product is made of.

# Inside the functions below: lets target `name` use a set of precompiled headers unless it opted out.
macro(k3_use_pch name set)
  if(NOT ARG_NO_PCH AND NOT K3_KERNELS_ONLY)
    target_precompile_headers(${name} REUSE_FROM ${set})
  endif()
endmacro()

# k3_library(NAME SOURCES ... DEPENDS ...): a static library of common/ or services/.
function(k3_library name)
  cmake_parse_arguments(ARG "NO_PCH" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS})
  k3_use_pch(${name} k3_pch)
endfunction()

# The target that builds every executable in <build>/bin, and no test.
add_custom_target(binaries)

# k3_binary(NAME SOURCES ... DEPENDS ...): an executable in <build>/bin.
function(k3_binary name)
  cmake_parse_arguments(ARG "NO_PCH" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS})
  add_dependencies(binaries ${name})
  k3_use_pch(${name} k3_pch)
endfunction()

# The tests built with ThreadSanitizer: of what carries messages and weights. Not of what computes:
# OpenMP's runtime is not instrumented.
add_custom_target(tsan_tests)

# k3_test(NAME [TSAN] SOURCES ... DEPENDS ...): a GoogleTest binary in <build>/tests; tests/run.sh runs
# every binary it finds there.
function(k3_test name)
  cmake_parse_arguments(ARG "NO_PCH;TSAN" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE K3_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  k3_use_pch(${name} k3_test_pch)
  if(ARG_TSAN)
    add_dependencies(tsan_tests ${name})
  endif()
endfunction()
