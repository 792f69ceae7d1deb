# Run by CPack before it makes the deb: adds the files that only a Debian package has.
set(documents ${CPACK_TEMPORARY_DIRECTORY}/usr/share/doc/annulus)
file(REMOVE ${documents}/LICENSE)  # Debian has its text once, see `copyright`
file(COPY ${CMAKE_CURRENT_LIST_DIR}/copyright DESTINATION ${documents}
     FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
set(VERSION ${CPACK_PACKAGE_VERSION})
set(CONTACT ${CPACK_PACKAGE_CONTACT})
string(TIMESTAMP DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)  # of $SOURCE_DATE_EPOCH, if set
configure_file(${CMAKE_CURRENT_LIST_DIR}/changelog ${documents}/changelog.Debian @ONLY)
execute_process(COMMAND gzip -9 --no-name --force ${documents}/changelog.Debian
                COMMAND_ERROR_IS_FATAL ANY)
