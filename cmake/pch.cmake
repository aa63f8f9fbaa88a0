# The precompiled headers (cmake/pch.h), one set for code and one with GoogleTest. They hold for every
# target that is compiled with the same flags; OpenMP is such a flag, so what uses it opts out (NO_PCH).
add_library(k3_pch OBJECT ${CMAKE_SOURCE_DIR}/cmake/pch.cpp)
target_link_libraries(k3_pch PRIVATE tl::expected fmt::fmt spdlog::spdlog CLI11::CLI11 Threads::Threads)
target_precompile_headers(k3_pch PRIVATE ${CMAKE_SOURCE_DIR}/cmake/pch.h)
