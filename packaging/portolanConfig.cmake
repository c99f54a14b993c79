# find_package(portolan) gives the imported libraries portolan::portals3, portolan::gasnet-seq, portolan::gasnet-parsync and
# portolan::gasnet-par; the last two are for programs of threads.
get_filename_component(_portolan_lib "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
get_filename_component(_portolan_prefix "${CMAKE_CURRENT_LIST_DIR}/@UP@" ABSOLUTE)

if(NOT TARGET portolan::portals3)
  add_library(portolan::portals3 SHARED IMPORTED)
  set_target_properties(portolan::portals3 PROPERTIES
    IMPORTED_LOCATION "${_portolan_lib}/libportals3.so"
    IMPORTED_SONAME "libportals3.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_portolan_prefix}/include")

  foreach(_portolan_model seq parsync par)
    string(TOUPPER ${_portolan_model} _portolan_define)
    add_library(portolan::gasnet-${_portolan_model} SHARED IMPORTED)
    set_target_properties(portolan::gasnet-${_portolan_model} PROPERTIES
      IMPORTED_LOCATION "${_portolan_lib}/libgasnet-portals-${_portolan_model}.so"
      IMPORTED_SONAME "libgasnet-portals-${_portolan_model}.so"
      INTERFACE_COMPILE_DEFINITIONS "GASNET_${_portolan_define}"
      INTERFACE_INCLUDE_DIRECTORIES "${_portolan_prefix}/include/portals-conduit"
      INTERFACE_LINK_LIBRARIES "pthread")
  endforeach()
endif()
