package uvbackend

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// knownLanguages has the interpreters of languages other than Python, by language. Programs can execute each file.
type knownLanguages map[executor.Language]string

// findLanguages looks for the interpreters in the folders of p and in defaultPath.
func findLanguages(p places, m mechanisms) knownLanguages {
	found := knownLanguages{}
	folders, _ := p.folders()
	folders = append(folders, strings.Split(defaultPath, ":")...)
	for _, candidate := range []struct {
		language executor.Language
		name     string
	}{{executor.LanguageJavaScript, "node"}, {executor.LanguageShell, "bash"}, {executor.LanguageShell, "sh"}} {
		if found[candidate.language] != "" {
			continue
		}
		for _, dir := range folders {
			if path := reachable(dir+"/"+candidate.name, m); path != "" {
				found[candidate.language] = path
				break
			}
		}
	}
	return found
}

// list returns the languages for Capabilities. Python is always one of them.
func (k knownLanguages) list() []executor.Language {
	list := []executor.Language{executor.LanguagePython}
	for _, l := range []executor.Language{executor.LanguageJavaScript, executor.LanguageShell} {
		if k[l] != "" {
			list = append(list, l)
		}
	}
	return list
}

func (k knownLanguages) missing(l executor.Language) string {
	switch l {
	case executor.LanguageJavaScript:
		return "this machine has no node that programs can execute"
	case executor.LanguageShell:
		return "this machine has no bash and no sh that programs can execute"
	default:
		return "unknown language on the uv backend"
	}
}

// inBox returns the name of a program in a box: path if the box has the folder of path, else the file that the links of path lead to.
func inBox(path, file string) string {
	if isSystem(path) {
		return path
	}
	return file
}

// reachable returns path if it is an executable file for the uids that run programs, else "".
func reachable(path string, m mechanisms) string {
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return ""
	}
	if m.Setuid && info.Mode()&0o001 == 0 {
		return ""
	}
	if m.Box {
		return inBox(path, file)
	}
	if m.Setuid && closedFolder(filepath.Dir(path), m.uids.first)+closedFolder(filepath.Dir(file), m.uids.first) != "" {
		return ""
	}
	return path // not file: busybox and shims depend on the name by which they are called
}
