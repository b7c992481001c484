// Package hostpath opens folders of the host that callers name. A name is no proof: between a check and a use, a user of the host who
// may rename in a folder can put a link in its place. So what was checked is what is opened, and everything below it is reached through
// the open folder.
//
// One flow: the configuration opens /srv/projects to callers. Real resolves that name once, at the start. A caller names
// /srv/projects/a. Below finds the open folder that it lies in by name, and OpenRoot opens it, refusing links on the way. A folder that
// was opened so really lies there.
package hostpath
