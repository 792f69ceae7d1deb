# What `cmake --install` puts where, and `cpack -G DEB` (deploy/package.sh).
set(installed annulusd annulus annulus-bench annulus-tokenize annulus_sentencepiece)
add_custom_target(programs DEPENDS ${installed})

install(TARGETS annulusd annulus annulus-bench annulus-tokenize RUNTIME DESTINATION bin)
install(TARGETS annulus_sentencepiece LIBRARY DESTINATION lib/annulus)
install(FILES LICENSE README.md SECURITY.md DESTINATION share/doc/annulus)
install(FILES deploy/RUNBOOK.md DESTINATION share/doc/annulus)
install(DIRECTORY deploy/monitoring/dashboards deploy/monitoring/grafana DESTINATION share/annulus/monitoring)
install(FILES deploy/monitoring/alertmanager.yml deploy/monitoring/draw_dashboards.py deploy/monitoring/prometheus.yml
              deploy/monitoring/rules.yaml DESTINATION share/annulus/monitoring)
install(FILES deploy/systemd/gpu.conf DESTINATION share/doc/annulus/systemd)
install(FILES deploy/systemd/annulus.sysusers DESTINATION lib/sysusers.d RENAME annulus.conf)
install(FILES deploy/systemd/annulus.tmpfiles DESTINATION lib/tmpfiles.d RENAME annulus.conf)
# What depends on the prefix, and what the programs print themselves: configuration, manuals.
install(CODE "set(ANNULUSD \"$<TARGET_FILE:annulusd>\")
set(ANNULUS \"$<TARGET_FILE:annulus>\")
set(SOURCES \"${CMAKE_CURRENT_SOURCE_DIR}/deploy\")")
install(SCRIPT deploy/install_files.cmake)

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
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "poppler-utils")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "prometheus, prometheus-alertmanager, python3")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian/conffiles ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian/postinst
    ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian/prerm ${CMAKE_CURRENT_SOURCE_DIR}/deploy/debian/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
