package uvbackend

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// knownLanguages are the interpreters of other languages, by language: files that programs can execute.
type knownLanguages map[executor.Language]string

// findLanguages looks for them in the machine's own folders and on the host's PATH.
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

// list is what Capabilities says.
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
		return "no node that programs can reach is on this machine"
	case executor.LanguageShell:
		return "neither bash nor sh that programs can reach is on this machine"
	default:
		return "the uv backend does not know it"
	}
}

// reachable returns path, if it is a program and the uids that run programs can execute it.
func reachable(path string, m mechanisms) string {
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return ""
	}
	if m.Setuid && (passable(filepath.Dir(path), m.uids.first)+passable(filepath.Dir(file), m.uids.first) != "" || info.Mode()&0o001 == 0) {
		return ""
	}
	return path // not file: busybox and shims go by the name they are called by
}
