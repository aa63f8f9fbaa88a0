# The kernels, what they need of the product, and their tests, for a target that has a compiler but
# none of Debian's libraries: from the host they take headers and the source of GoogleTest.
find_package(OpenMP REQUIRED)

# /usr/include itself would put the host's C library before the target's.
set(k3_host_headers ${CMAKE_BINARY_DIR}/host_headers)
file(MAKE_DIRECTORY ${k3_host_headers})
foreach(folder fmt nlohmann tl)
  file(CREATE_LINK /usr/include/${folder} ${k3_host_headers}/${folder} SYMBOLIC)
endforeach()
add_library(k3_host_headers INTERFACE)
target_include_directories(k3_host_headers SYSTEM INTERFACE ${k3_host_headers})
target_compile_definitions(k3_host_headers INTERFACE FMT_HEADER_ONLY)
foreach(dependency fmt::fmt nlohmann_json::nlohmann_json tl::expected)
  add_library(${dependency} ALIAS k3_host_headers)
endforeach()

set(INSTALL_GTEST OFF)
add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)

k3_library(k3_base NO_PCH SOURCES common/base/check.cpp DEPENDS tl::expected fmt::fmt)
add_subdirectory(common/codec)
add_subdirectory(common/kernels)
enable_testing()
add_subdirectory(tests/unit/common/kernels)
