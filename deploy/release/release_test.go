package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/cavaliergopher/rpm"
)

const (
	testVersion = "v0.1.0-rc.1"
	// patience is for a machine that is busy. Nothing is measured by it.
	patience = 2 * time.Minute
)

// built is a directory with the files of a release for this machine's architecture.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "feedbridge-dist-")
	if err != nil {
		return "", err
	}
	return dir, run(context.Background(), []string{"-version", testVersion, "-out", dir, "-target", "linux/" + runtime.GOARCH}, io.Discard)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := built(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// file returns the path of a file of the release.
func file(t *testing.T, suffix string) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil || len(found) != 1 {
		t.Fatalf("the files that end with %s: %v %v", suffix, found, err)
	}
	return found[0]
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestChecksumsAreOfAllFiles(t *testing.T) {
	sums := string(read(t, file(t, "checksums.txt")))
	files, err := os.ReadDir(filepath.Dir(file(t, "checksums.txt")))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 5 { // archive, deb, rpm, SBOM, checksums
		t.Errorf("there are %d files: %v", len(files), files)
	}
	for _, f := range files {
		if f.Name() == "checksums.txt" {
			continue
		}
		if line := fmt.Sprintf("%x  %s\n", sha256.Sum256(read(t, file(t, f.Name()))), f.Name()); !strings.Contains(sums, line) {
			t.Errorf("checksums.txt does not have %s", line)
		}
	}
}

func TestArchive(t *testing.T) {
	compressed, err := gzip.NewReader(bytes.NewReader(read(t, file(t, ".tar.gz"))))
	if err != nil {
		t.Fatal(err)
	}
	packed := map[string]string{}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		packed[strings.TrimPrefix(header.Name, "feedbridge_0.1.0-rc.1_linux_"+runtime.GOARCH+"/")] = string(text)
	}
	// The whole text of each licence, and the notice of a module.
	for _, text := range []string{"Permission is hereby granted, free of charge", "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION", "The Prometheus Authors"} {
		if !strings.Contains(packed[licensesFile], text) {
			t.Errorf("%s does not have %q", licensesFile, text)
		}
	}
	for name, want := range map[string]string{
		"feedbridge":                "\x7fELF",
		"LICENSE":                   "Apache License",
		licensesFile:                "github.com/nats-io/nats-server/v2 v",
		"deploy/feedbridge.service": "WatchdogSec=",
		"deploy/feedbridge.yaml":    "feeds:",
		"man/feedbridge.1":          testVersion,
		"man/feedbridge-run.1":      "FEEDBRIDGE_CONFIG",
		"completion/feedbridge":     "__start_feedbridge",
		"completion/_feedbridge":    "#compdef feedbridge",
		"README.md":                 "# feedbridge",
	} {
		if text, ok := packed[name]; !ok || !strings.Contains(text, want) {
			t.Errorf("the archive has %s: %v, with %q: %v", name, ok, want, strings.Contains(text, want))
		}
	}
}

// Every module in the program is in the bill of materials, with a licence.
func TestSBOM(t *testing.T) {
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(read(t, file(t, ".cdx.json"))), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if c := bom.Metadata.Component; c.Name != "feedbridge" || c.Version != testVersion {
		t.Errorf("it is of %s %s", c.Name, c.Version)
	}
	var names []string
	for _, c := range *bom.Components {
		names = append(names, c.Name)
		if c.Licenses == nil || len(*c.Licenses) == 0 || (*c.Licenses)[0].License.ID == "" {
			t.Errorf("%s has no licence", c.Name)
		}
		if c.PackageURL != "pkg:golang/"+c.Name+"@"+c.Version {
			t.Errorf("the package URL of %s is %s", c.Name, c.PackageURL)
		}
	}
	for _, name := range []string{"github.com/nats-io/nats-server/v2", "github.com/twmb/franz-go", "github.com/spf13/cobra", "std"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not among the %d components", name, len(names))
		}
	}
	for _, name := range []string{"pgregory.net/rapid", "github.com/cpuguy83/go-md2man/v2"} {
		if slices.Contains(names, name) {
			t.Errorf("%s is a component, and is not in the program", name)
		}
	}
}

// The licence of a dependency is known, and allowed.
func TestLicenses(t *testing.T) {
	t.Parallel()
	mit := "Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the \"Software\"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the following conditions:\n\nThe above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.\n\nTHE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."
	gpl := "This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License as published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version."
	for name, test := range map[string]struct{ file, text, want string }{
		"a licence that is allowed":  {"LICENSE.md", mit, ""},
		"one that is not":            {"COPYING", gpl, "the module example.com/m v1.0.0 has the licence GPL-3.0-or-later; allowed are"},
		"a text that is not known":   {"LICENCE", "Do as you like.", "no known licence in the module example.com/m v1.0.0"},
		"no file with a licence":     {"main.go", mit, "no known licence in the module example.com/m v1.0.0"},
		"a notice without a licence": {"NOTICE", "Copyright the authors", "no known licence"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, test.file), []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			c := component{path: "example.com/m", version: "v1.0.0"}
			err := c.readLicenses(dir)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestWrongArguments(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		`invalid version "1.2.3": want one such as v1.2.3`: {"-version", "1.2.3", "-out", t.TempDir()},
		`unknown target, want one of linux/amd64`:          {"-target", "plan9/386"},
		full + " is not empty":                             {"-version", "v1.2.3", "-out", full},
		`unexpected argument "v1.2.3"`:                     {"v1.2.3"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// A program that needs a C library on the machine is no release.
func TestProgramsAreStatic(t *testing.T) {
	t.Parallel()
	if err := checkStatic("/bin/sh"); err == nil || !strings.Contains(err.Error(), "needs a dynamic linker") {
		t.Errorf("/bin/sh is static: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := checkStatic(self); err == nil {
		t.Error("the program of this test is static and stripped")
	}
}

func TestRPM(t *testing.T) {
	pkg, err := rpm.Open(file(t, ".rpm"))
	if err != nil {
		t.Fatal(err)
	}
	if got := pkg.Name() + " " + pkg.Version() + " " + pkg.Architecture(); !regexp.MustCompile(`^feedbridge 0\.1\.0~rc\.1 (x86_64|aarch64)$`).MatchString(got) {
		t.Errorf("it is %s", got)
	}
	modes := map[string]os.FileMode{}
	for _, f := range pkg.Files() {
		modes[f.Name()] = f.Mode()
		if strings.HasPrefix(f.Name(), "/etc/") || f.Owner() != "root" {
			t.Errorf("it has %s of %s", f.Name(), f.Owner())
		}
	}
	for name, want := range map[string]os.FileMode{"/usr/bin/feedbridge": 0o755, "/usr/lib/systemd/system/feedbridge.service": 0o644, "/usr/share/man/man1/feedbridge.1": 0o644} {
		if modes[name].Perm() != want {
			t.Errorf("%s has the mode %v", name, modes[name])
		}
	}
}

// installed is a directory in which the deb is installed, as the root of a system.
type installed struct {
	root     string
	unit     map[string][]string // the settings of the unit
	uid, gid int
}

// dpkg runs dpkg on the directory as on a system of its own.
func (i installed) dpkg(t *testing.T, args ...string) {
	t.Helper()
	// The dependencies are not in the directory. The scripts of the package run outside of it,
	// with DPKG_ROOT.
	cmd := exec.CommandContext(t.Context(), "dpkg", append([]string{"--root=" + i.root, "--force-script-chrootless", "--force-depends"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("dpkg %v: %v\n%s", args, err, out)
	}
}

func (i installed) path(name string) string { return filepath.Join(i.root, name) }

// install installs the deb.
func install(t *testing.T) installed {
	t.Helper()
	_, err := exec.LookPath("dpkg")
	if err == nil {
		_, err = exec.LookPath("systemd-sysusers")
	}
	if err == nil && os.Geteuid() != 0 {
		err = errors.New("only root can install a package")
	}
	if err != nil {
		if os.Getenv("REQUIRE_DPKG") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	i := installed{root: t.TempDir()}
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib", "etc", "run", "tmp"} {
		if err := os.MkdirAll(i.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(i.path("var/lib/dpkg/status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	i.dpkg(t, "--install", file(t, ".deb"))
	i.unit = parseUnit(string(read(t, i.path("usr/lib/systemd/system/feedbridge.service"))))
	for line := range strings.Lines(string(read(t, i.path("etc/passwd")))) {
		if fields := strings.Split(line, ":"); fields[0] == i.unit["User"][0] {
			i.uid, _ = strconv.Atoi(fields[2])
			i.gid, _ = strconv.Atoi(fields[3])
		}
	}
	if i.uid == 0 || i.gid == 0 {
		t.Fatalf("there is no user %v", i.unit["User"])
	}
	return i
}

// parseUnit returns the settings of a unit, each with its values.
func parseUnit(text string) map[string][]string {
	settings := map[string][]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			settings[key] = append(settings[key], value)
		}
	}
	return settings
}

// start starts the service as the unit says, in the directory and as its user. What of the unit
// needs systemd itself is left out.
func (i installed) start(t *testing.T, more ...string) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	state := i.path(i.unit["WorkingDirectory"][0])
	if err := errors.Join(os.MkdirAll(state, 0o700), os.Chown(state, i.uid, i.gid), os.Chmod(i.path("tmp"), 0o777|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	command := strings.Fields(i.unit["ExecStart"][0])
	stderr = &bytes.Buffer{}
	cmd = exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Err = nil // the program is looked for in the directory
	cmd.Dir, cmd.Stderr = i.unit["WorkingDirectory"][0], stderr
	cmd.Env = append(slices.Clone(i.unit["Environment"]), more...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Credential: &syscall.Credential{Uid: uint32(i.uid), Gid: uint32(i.gid)}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, stderr
}

// The deb is installed in a directory and started there as its unit says: as the user of the
// service, which may read the configuration and no one else may, with nothing else in the
// directory that the program could need, and with a socket as systemd provides it.
func TestDebIsInstalledAndStarted(t *testing.T) {
	i := install(t)
	if got, want := i.unit["RestartPreventExitStatus"], []string{"2"}; !slices.Equal(got, want) || i.unit["Type"][0] != "notify" || i.unit["WatchdogSec"] == nil {
		t.Errorf("the unit is %v", i.unit)
	}
	info, err := os.Stat(i.path("etc/feedbridge"))
	if err != nil {
		t.Fatal(err)
	}
	if stat := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != 0o750 || stat.Uid != 0 || int(stat.Gid) != i.gid {
		t.Errorf("/etc/feedbridge is %v of %d:%d", info.Mode(), stat.Uid, stat.Gid)
	}

	t.Run("without a configuration", func(t *testing.T) {
		cmd, stderr := i.start(t)
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("it ends with %v, and would be started again", err)
		}
		if text := stderr.String(); !regexp.MustCompile(`^(\S+: )?/etc/feedbridge/feedbridge\.yaml: .*(no such file|does not exist).*\n$`).MatchString(text) {
			t.Errorf("it prints %q", text)
		}
	})

	t.Run("with a configuration", func(t *testing.T) {
		configuration := i.path("etc/feedbridge/feedbridge.yaml")
		text := "buses: {here: {embedded: {listen: 127.0.0.1:0}}}\nadmin: {listen: 127.0.0.1:0}\nfeeds: {orders: {url: \"http://127.0.0.1:9/feed\"}}\n"
		if err := errors.Join(os.WriteFile(configuration, []byte(text), 0o640), os.Chmod(configuration, 0o640), os.Chown(configuration, 0, i.gid)); err != nil {
			t.Fatal(err)
		}
		socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: i.path("run/notify"), Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = socket.Close() })
		if err := os.Chmod(i.path("run/notify"), 0o777); err != nil {
			t.Fatal(err)
		}
		cmd, stderr := i.start(t, "NOTIFY_SOCKET=/run/notify", "WATCHDOG_USEC=1000000")
		next := func() string {
			message := make([]byte, 4096)
			_ = socket.SetReadDeadline(time.Now().Add(patience))
			n, err := socket.Read(message)
			if err != nil {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				t.Fatalf("%v\n%s", err, stderr)
			}
			return string(message[:n])
		}
		for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
			if got := next(); got != want {
				t.Errorf("systemd gets %q, want %q", got, want)
			}
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		for next() != "STOPPING=1" {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ends with %v\n%s", err, stderr)
		}
		if _, err := os.Stat(i.path("var/lib/feedbridge/jetstream")); err != nil {
			t.Errorf("the embedded bus keeps its data elsewhere: %v", err)
		}
	})

	t.Run("updated and removed", func(t *testing.T) {
		i.dpkg(t, "--install", file(t, ".deb"))
		i.dpkg(t, "--remove", "feedbridge")
		if _, err := os.Stat(i.path("usr/bin/feedbridge")); err == nil {
			t.Error("the program is still there")
		}
		i.dpkg(t, "--purge", "feedbridge")
		for _, name := range []string{"etc/feedbridge/feedbridge.yaml", "var/lib/feedbridge/jetstream"} {
			if _, err := os.Stat(i.path(name)); err != nil {
				t.Errorf("the configuration and the data must stay: %v", err)
			}
		}
	})
}

// systemd has no objection to the unit.
func TestUnitIsValid(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		if os.Getenv("REQUIRE_DPKG") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	i := install(t)
	unit := strings.ReplaceAll(string(read(t, i.path("usr/lib/systemd/system/feedbridge.service"))), "=/usr/bin/feedbridge", "="+i.path("usr/bin/feedbridge"))
	if _, err := user.Lookup("feedbridge"); err != nil {
		unit = strings.NewReplacer("User=feedbridge", "User=root", "Group=feedbridge", "Group=root").Replace(unit)
	}
	name := filepath.Join(t.TempDir(), "feedbridge.service")
	if err := os.WriteFile(name, []byte(unit), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", name).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
