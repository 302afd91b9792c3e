# A ledger, less what a linker is free to decide: where an image stands, the spelling of its id, and how many bytes it has.
/^NOTE: /d
/^hip image .* id=host-/d
s/^\([a-z]* image .*\) index=[0-9]*/\1/
s/id=hipv4-/id=hip-/
s/ size=[0-9]* hash=[0-9a-f]*$//
