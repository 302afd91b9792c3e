# Removes the properties that a linker may choose from a registration log: an image's index, the spelling of its ID, its size and hash.
/^NOTE: /d
/^hip image .* id=host-/d
s/^\([a-z]* image .*\) index=[0-9]*/\1/
s/id=hipv4-/id=hip-/
s/ size=[0-9]* hash=[0-9a-f]*$//
