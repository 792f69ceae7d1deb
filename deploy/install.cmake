# Which files `cmake --install` and `cpack -G DEB` (deploy/package.sh) install, and where.
set(installed annulusd annulus annulus-bench annulus-tokenize annulus_sentencepiece)
add_custom_target(programs DEPENDS ${installed})

install(TARGETS annulusd annulus annulus-bench annulus-tokenize RUNTIME DESTINATION bin)
install(TARGETS annulus_sentencepiece LIBRARY DESTINATION lib/annulus)
install(FILES LICENSE README.md SECURITY.md DESTINATION share/doc/annulus)
install(FILES deploy/RING.md deploy/RUNBOOK.md DESTINATION share/doc/annulus)
install(DIRECTORY deploy/monitoring/dashboards deploy/monitoring/grafana DESTINATION share/annulus/monitoring)
install(FILES deploy/monitoring/alertmanager.yml deploy/monitoring/draw_dashboards.py deploy/monitoring/prometheus.yml
              deploy/monitoring/rules.yaml DESTINATION share/annulus/monitoring)
install(FILES deploy/systemd/gpu.conf deploy/systemd/ring.conf DESTINATION share/doc/annulus/systemd)
install(FILES deploy/systemd/annulus.sysusers DESTINATION lib/sysusers.d RENAME annulus.conf)
install(FILES deploy/systemd/annulus.tmpfiles DESTINATION lib/tmpfiles.d RENAME annulus.conf)
# Files that depend on the prefix, and files that the programs print: configuration, manuals.
install(CODE "set(ANNULUSD \"$<TARGET_FILE:annulusd>\")
set(ANNULUS \"$<TARGET_FILE:annulus>\")
set(SOURCES \"${CMAKE_CURRENT_SOURCE_DIR}/deploy\")")
install(SCRIPT deploy/install_files.cmake)

# The client library with its headers, for programs of others: ninja client_library, then
# cmake --install FOLDER --component client --prefix PREFIX. Not part of the package.
add_custom_target(client_library DEPENDS annulus_client annulus_client_format annulus_proto)
set(in_client COMPONENT client EXCLUDE_FROM_ALL)
install(TARGETS annulus_client annulus_client_format annulus_proto ARCHIVE DESTINATION lib ${in_client})
foreach(header cancellation connection documents failure generation)
  install(FILES client/${header}.h DESTINATION include/annulus-client/client ${in_client})
endforeach()
install(DIRECTORY ${PROJECT_BINARY_DIR}/proto/generated/ DESTINATION include/annulus-client ${in_client}
        FILES_MATCHING PATTERN "*.pb.h" PATTERN internal EXCLUDE)
configure_file(deploy/client/annulus-client.pc.in ${PROJECT_BINARY_DIR}/client/annulus-client.pc @ONLY)
configure_file(deploy/client/annulusClientConfigVersion.cmake.in
               ${PROJECT_BINARY_DIR}/client/annulusClientConfigVersion.cmake @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/client/annulus-client.pc DESTINATION lib/pkgconfig ${in_client})
install(FILES deploy/client/annulusClientConfig.cmake ${PROJECT_BINARY_DIR}/client/annulusClientConfigVersion.cmake
        DESTINATION lib/cmake/annulusClient ${in_client})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME annulus)
set(CPACK_PACKAGE_VENDOR "the Annulus authors")
set(CPACK_PACKAGE_CONTACT "${ANNULUS_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
                                                GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian/stage.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "serves long documents to language models
A request's tokens are spread over a ring of devices, each of which keeps its
share of the keys and values. Attention is exact, or sparse with a stated
coverage.

This package has the daemon annulusd with its systemd unit, the command line
client annulus, and the benchmark annulus-bench.")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS
    "systemd | systemd-standalone-sysusers, systemd | systemd-standalone-tmpfiles")
# pdftotext, which `annulus` runs to read pdf.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "poppler-utils, qpdf")
# libucx0: for rings of several processes.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libucx0, prometheus, prometheus-alertmanager, python3")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian/conffiles ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian/postinst
    ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian/prerm ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
