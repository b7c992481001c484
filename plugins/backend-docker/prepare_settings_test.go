package dockerbackend

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/requirements"
)

// variables returns an environment.
func variables(set map[string]string) func(string) string {
	return func(name string) string { return set[name] }
}

func TestTheSectionOfPreparationsComesBeforeTheSettingsOfTheHost(t *testing.T) {
	t.Parallel()
	authorities := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authorities, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	host := hostSettings{home: t.TempDir(), env: variables(map[string]string{
		"UV_EXTRA_INDEX_URL": "https://host/more", "UV_FIND_LINKS": "/a,https://host/links /b", "SSL_CERT_FILE": "/host.pem",
		"HTTP_PROXY": "http://host:1", "https_proxy": "http://host:2", "NO_PROXY": "local",
	})}
	plain, err := newPrepareSettings(PrepareConfig{}, "section", host)
	if err != nil {
		t.Fatal(err)
	}
	c := PrepareConfig{ExtraIndexURLs: []string{"https://x/1", "https://x/2"}, FindLinks: "/wheels", Proxy: "http://proxy:3", CACert: authorities}
	own, err := newPrepareSettings(c, "section", host)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct{ got, want any }{
		"the indexes of the host":   {plain.variables, map[string]string{"UV_EXTRA_INDEX_URL": "https://host/more"}},
		"the own indexes":           {own.variables, map[string]string{"UV_INDEX": "https://x/1 https://x/2"}},
		"the folders of the host":   {plain.folders, []string{"/a", "/b"}},
		"the links of the host":     {plain.links, []string{"https://host/links"}},
		"the own folder":            {append(own.folders, own.links...), []string{"/wheels"}},
		"the authorities":           {[]string{plain.bundle, own.bundle}, []string{"/host.pem", authorities}},
		"the proxies of the host":   {plain.proxies, map[string]string{"HTTP_PROXY": "http://host:1", "https_proxy": "http://host:2", "NO_PROXY": "local"}},
		"the own proxy":             {own.proxies, map[string]string{"HTTP_PROXY": "http://proxy:3", "HTTPS_PROXY": "http://proxy:3", "http_proxy": "http://proxy:3", "https_proxy": "http://proxy:3", "NO_PROXY": "local"}},
		"sources that are the same": {plain.key == own.key, false},
	} {
		if fmt.Sprint(c.got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
	_, err = newPrepareSettings(PrepareConfig{CACert: authorities + ".gone"}, "section", host)
	if executor.CodeOf(err) != executor.Invalid || !ofField(err, "section.ca_cert") {
		t.Errorf("authorities that cannot be read: %v", err)
	}
}

func TestToolsAndCommandsGetTheirVariables(t *testing.T) {
	t.Parallel()
	s := prepareSettings{
		variables: map[string]string{
			"UV_DEFAULT_INDEX": "http://plain.example:8/simple", "UV_EXTRA_INDEX_URL": "https://secure.example/simple http://other.example/simple",
			"UV_INSECURE_HOST": "old.example", "UV_NO_INDEX": "1", "UV_HTTP_TIMEOUT": "7",
		},
		proxies: map[string]string{"HTTPS_PROXY": "http://proxy:3"},
	}
	tools := map[string]string{
		"UV_NO_CONFIG": "1", "UV_NO_ENV_FILE": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1", "PIP_CONFIG_FILE": "/dev/null",
		"PIP_INDEX_URL": "http://plain.example:8/simple", "PIP_EXTRA_INDEX_URL": "https://secure.example/simple http://other.example/simple",
		"PIP_NO_INDEX": "1", "PIP_TRUSTED_HOST": "old.example plain.example:8 other.example", "PIP_DEFAULT_TIMEOUT": "7",
		"UV_FIND_LINKS": "/l0,/l1", "PIP_FIND_LINKS": "/l0 /l1", "SSL_CERT_FILE": "/ca", "PIP_CERT": "/ca", "NETRC": "/netrc", "HTTPS_PROXY": "http://proxy:3",
	}
	maps.Copy(tools, s.variables)
	if got := s.forTools("/ca", "/netrc", []string{"/l0", "/l1"}); !maps.Equal(got, tools) {
		t.Errorf("tools: %v, want %v", got, tools)
	}
	commands := map[string]string{"DEBIAN_FRONTEND": "noninteractive", "HOME": "/root", "HTTPS_PROXY": "http://proxy:3"}
	if got := s.forCommands("", "/apt"); !maps.Equal(got, commands) {
		t.Errorf("commands: %v, want %v", got, commands)
	}
	for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"} {
		commands[name] = "/ca"
	}
	commands["APT_CONFIG"] = "/apt"
	if got := s.forCommands("/ca", "/apt"); !maps.Equal(got, commands) {
		t.Errorf("commands with authorities: %v, want %v", got, commands)
	}
}

func TestAProxyWithCredentialsIsASettingThatAnImageLacks(t *testing.T) {
	t.Parallel()
	for proxy, want := range map[string]bool{"http://d:canary@p": true, "http://p": false} {
		all := prepareSettings{proxies: map[string]string{"HTTPS_PROXY": proxy}}
		if got := all.given(false, false).fewerThan(all); got != want {
			t.Errorf("%s: %v", proxy, got)
		}
	}
}

func TestTheUVOfThisHostIsAProgramAndTheNewest(t *testing.T) {
	t.Parallel()
	var program bytes.Buffer
	head := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT)}
	copy(head.Ident[:], elf.ELFMAG+string([]byte{byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}))
	if err := binary.Write(&program, binary.LittleEndian, head); err != nil {
		t.Fatal(err)
	}
	put := func(content []byte, path ...string) string {
		file := filepath.Join(path...)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, content, 0o700)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	home, shims, bin := t.TempDir(), t.TempDir(), t.TempDir()
	host := hostSettings{home: home, env: variables(map[string]string{"PATH": shims + ":" + bin})}
	put([]byte("#!/bin/sh\n"), shims, "uv")
	put(program.Bytes(), home, ".cache/python-executor/uv/tools/uv-0.8.0/bin/uv")
	newer := put(program.Bytes(), home, ".cache/python-executor/uv/tools/uv-0.9.0/bin/uv")
	if shared, _ := filepath.Glob("/var/cache/python-executor/tools/uv-*/bin/uv"); len(shared) == 0 {
		if got := hostUV(host); got != newer {
			t.Errorf("of two kept by the uv backend: %q", got)
		}
	}
	installed := put(program.Bytes(), home, ".local/bin/uv")
	if got := hostUV(host); got != installed {
		t.Errorf("that of the installer: %q", got)
	}
	onPath := put(program.Bytes(), bin, "uv")
	if got := hostUV(host); got != onPath {
		t.Errorf("that on PATH behind a script: %q", got)
	}
}

func TestAHashDependsOnWhereAPartEnds(t *testing.T) {
	t.Parallel()
	if hashOf("ab", "c") == hashOf("a", "bc") || hashOf("a", "b") == hashOf("a\x00\x00\x00\x00b") {
		t.Error("two lists of parts have the same hash")
	}
}

func TestAPreparationGetsItsFilesWithTheirOwnersAndModes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wheels := filepath.Join(dir, "wheels")
	err := os.MkdirAll(filepath.Join(wheels, "folder"), 0o700)
	for _, path := range []string{"uv", "netrc", "wheels/a.whl"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, path), []byte(path), 0o600))
	}
	if err = errors.Join(err, os.Symlink("folder", filepath.Join(wheels, "link"))); err != nil {
		t.Fatal(err)
	}
	i := &images{settings: prepareSettings{uv: filepath.Join(dir, "uv"), netrc: filepath.Join(dir, "netrc")}}
	files := func(b bringSpec) (list []string) {
		var packed bytes.Buffer
		if err := i.pack(&packed, b, []byte("ca")); err != nil {
			t.Fatal(err)
		}
		for r := tar.NewReader(&packed); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return list
			}
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, fmt.Sprintf("/%s %o %d:%d", h.Name, h.Mode, h.Uid, h.Gid))
		}
	}
	commands := []string{prepareFolder + " 755 0:0", toolsFolder + " 755 0:0", toolsFolder + "/ca.pem 444 0:0", toolsFolder + "/apt.conf 444 0:0"}
	if got := files(bringSpec{bundle: toolsFolder + "/ca.pem", apt: toolsFolder + "/apt.conf"}); !slices.Equal(got, commands) {
		t.Errorf("commands: %q, want %q", got, commands)
	}
	install := []string{
		prepareFolder + " 755 1000:1000", toolsFolder + " 755 1000:1000", toolsFolder + "/netrc 400 1000:1000", toolsFolder + "/uv 555 1000:1000",
		"/l0 755 1000:1000", "/l0/a.whl 444 1000:1000", "/l1 755 1000:1000",
	}
	folders := []broughtFolder{{wheels, "/l0"}, {filepath.Join(dir, "missing"), "/l1"}}
	if got := files(bringSpec{tools: true, netrc: toolsFolder + "/netrc", folders: folders}); !slices.Equal(got, install) {
		t.Errorf("an installation: %q, want %q", got, install)
	}
	err = i.pack(io.Discard, bringSpec{folders: []broughtFolder{{filepath.Join(dir, "uv"), "/l0"}}}, nil)
	if err == nil {
		t.Error("a folder that is a file was brought")
	}
}

// TestTheAuthoritiesOfAnImageAreRead: the first file with a certificate counts.
func TestTheAuthoritiesOfAnImageAreRead(t *testing.T) {
	t.Parallel()
	paths := requirements.SystemBundles()
	const certificate = "-----BEGIN CERTIFICATE-----\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"the second file":              {map[string]string{paths[1]: certificate}, certificate},
		"a first file without any":     {map[string]string{paths[0]: "# none\n", paths[1]: certificate + "2"}, certificate + "2"},
		"no file":                      {nil, ""},
		"a file that is far too large": {map[string]string{paths[0]: certificate + strings.Repeat("\n", maxBundle)}, ""},
		"a file of the size that fits": {map[string]string{paths[0]: certificate + strings.Repeat("\n", maxBundle-len(certificate))}, certificate + strings.Repeat("\n", maxBundle-len(certificate))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := &images{imagesOptions: imagesOptions{daemon: toyDaemonServing(t, func(w http.ResponseWriter, r *http.Request, _ string) {
				content, has := c.files[r.URL.Query().Get("path")]
				if !has {
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, `{"message":"no such file"}`)
					return
				}
				w.Header().Set("Content-Type", "application/x-tar")
				w.Header().Set("X-Docker-Container-Path-Stat", base64.StdEncoding.EncodeToString([]byte("{}")))
				p := packer{Writer: tar.NewWriter(w)}
				p.file("ca.pem", []byte(content), 0o444)
				_ = p.end() // the reader may have had enough
			})}}
			if got := string(i.imageBundle(t.Context(), "c")); got != c.want {
				t.Errorf("%d bytes, want %d", len(got), len(c.want))
			}
		})
	}
}
