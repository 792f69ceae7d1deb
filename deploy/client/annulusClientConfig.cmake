# find_package(annulusClient) gives the target annulus::client. It compiles as C++20.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(Protobuf)
find_dependency(gRPC CONFIG)
find_dependency(absl)
find_dependency(OpenSSL)

get_filename_component(annulus_client_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
# add_annulus_part(NAME DEPS targets...): one of the installed libraries.
function(add_annulus_part name)
  if(NOT TARGET annulus::${name})
    add_library(annulus::${name} STATIC IMPORTED)
    set_target_properties(
      annulus::${name} PROPERTIES IMPORTED_LOCATION ${annulus_client_prefix}/lib/libannulus_${name}.a
                                  INTERFACE_INCLUDE_DIRECTORIES ${annulus_client_prefix}/include/annulus-client
                                  INTERFACE_COMPILE_FEATURES cxx_std_20
                                  INTERFACE_LINK_LIBRARIES "${ARGN}")
  endif()
endfunction()
add_annulus_part(proto gRPC::grpc++ protobuf::libprotobuf)
add_annulus_part(client_format absl::strings absl::str_format absl::status absl::statusor)
add_annulus_part(client annulus::client_format annulus::proto OpenSSL::Crypto)
