package deploy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"errors"
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
	"syscall"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// patience is for a machine that is busy. Nothing is measured by it.
const patience = 2 * time.Minute

// released returns the path of the only file of a release with a suffix, for this machine. The test is skipped
// without a release: the variable FEEDBRIDGE_DIST has the directory with the files that goreleaser has made.
func released(t *testing.T, suffix string) string {
	t.Helper()
	dir := os.Getenv("FEEDBRIDGE_DIST")
	if dir == "" {
		t.Skip("FEEDBRIDGE_DIST is not set; 'make release' sets it")
	}
	found, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil || len(found) != 1 {
		t.Fatalf("the files that end with %s: %v %v", suffix, found, err)
	}
	return found[0]
}

func TestArchiveIsComplete(t *testing.T) {
	compressed, err := gzip.NewReader(strings.NewReader(read(t, released(t, "_"+runtime.GOARCH+".tar.gz"))))
	must.Succeed(t, err)
	packed := map[string]string{}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Succeed(t, err)
		text, err := io.ReadAll(archive)
		must.Succeed(t, err)
		_, name, _ := strings.Cut(header.Name, "/")
		packed[name] = string(text)
	}
	for name, want := range map[string][]string{
		"LICENSE": {"Apache License"},
		// The whole text of each licence, and the notice of a module.
		"THIRD_PARTY_LICENSES.txt": {
			"github.com/nats-io/nats-server/v2 v", "Permission is hereby granted, free of charge",
			"TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION", "The Prometheus Authors",
		},
		"deploy/feedbridge.service": {"WatchdogSec="},
		"deploy/feedbridge.yaml":    {"feeds:"},
		"man/feedbridge.1":          {"feedbridge v"},
		"man/feedbridge-run.1":      {"FEEDBRIDGE_CONFIG"},
		"completion/feedbridge":     {"__start_feedbridge"},
		"completion/_feedbridge":    {"#compdef feedbridge"},
		"README.md":                 {"# feedbridge", "(docs/status-page.png)"},
		"docs/status-page.png":      {"PNG"},
		"docs/errors.md":            {"| The error says |"},
	} {
		for _, part := range want {
			if !strings.Contains(packed[name], part) {
				t.Errorf("%s of the archive has %d bytes, and lacks %q", name, len(packed[name]), part)
			}
		}
	}
	program, err := elf.NewFile(strings.NewReader(packed["feedbridge"]))
	must.Succeed(t, err)
	if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Error("the program needs a dynamic linker: something in it uses cgo")
	}
	if program.Section(".debug_info") != nil {
		t.Error("the program has debug information")
	}
}

// Every module in the program is in the bill of materials, with a licence.
func TestSBOMIsComplete(t *testing.T) {
	var bom struct {
		Components []struct {
			Name, Version, PURL string
			Evidence            struct {
				Licenses []struct{ License struct{ ID string } }
			}
		}
	}
	must.Succeed(t, json.Unmarshal([]byte(read(t, released(t, ".cdx.json"))), &bom))
	var names []string
	for _, c := range bom.Components {
		names = append(names, c.Name)
		if c.Name != "std" && (len(c.Evidence.Licenses) == 0 || c.Evidence.Licenses[0].License.ID == "") {
			t.Errorf("%s has no licence", c.Name)
		}
	}
	for name, want := range map[string]bool{
		"github.com/nats-io/nats-server/v2": true, "github.com/twmb/franz-go": true, "github.com/spf13/cobra": true, "std": true,
		"pgregory.net/rapid": false, "github.com/cpuguy83/go-md2man/v2": false, // are not in the program
	} {
		if slices.Contains(names, name) != want {
			t.Errorf("%s is among the %d components: %v", name, len(names), !want)
		}
	}
}

// checksums.txt has each file that a release publishes.
func TestChecksumsAreComplete(t *testing.T) {
	list := released(t, "checksums.txt")
	sums := read(t, list)
	for _, pattern := range []string{"*.tar.gz", "*.deb", "*.rpm", "*.cdx.json", "../deploy/package/out/*.tgz"} {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(list), pattern))
		if err != nil || len(files) == 0 {
			t.Errorf("the release has no %s: %v", pattern, err)
		}
		for _, file := range files {
			if !strings.Contains(sums, "  "+filepath.Base(file)+"\n") {
				t.Errorf("checksums.txt lacks %s", file)
			}
		}
	}
	formula := read(t, released(t, "feedbridge.rb"))
	if m := regexp.MustCompile(`sha256 "([0-9a-f]{64})"`).FindStringSubmatch(formula); m == nil || !strings.Contains(sums, m[1]+"  feedbridge_") {
		t.Errorf("checksums.txt has no source archive of the formula:\n%s", formula)
	}
}

func TestRPMIsComplete(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "rpm", "-qp", "--qf", "[%{FILENAMES} %{FILEMODES:perms} %{FILEUSERNAME}\n]", released(t, ".rpm")).Output()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("REQUIRE_DPKG") == "" {
		t.Skip(err)
	}
	must.Succeed(t, err)
	for _, want := range []string{
		"/usr/bin/feedbridge -rwxr-xr-x root", "/usr/lib/systemd/system/feedbridge.service -rw-r--r-- root", "/usr/share/man/man1/feedbridge.1 -rw-r--r-- root",
		"/usr/share/doc/feedbridge/docs/errors.md -rw-r--r-- root",
	} {
		if !strings.Contains(string(out), want+"\n") {
			t.Errorf("it lacks %s", want)
		}
	}
	if strings.Contains(string(out), "/etc/") {
		t.Errorf("it has files in /etc:\n%s", out)
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
		must.Succeed(t, os.MkdirAll(i.path(dir), 0o755))
	}
	must.Succeed(t, os.WriteFile(i.path("var/lib/dpkg/status"), nil, 0o644))
	i.dpkg(t, "--install", released(t, ".deb"))
	i.unit = parseUnit(read(t, i.path("usr/lib/systemd/system/feedbridge.service")))
	for line := range strings.Lines(read(t, i.path("etc/passwd"))) {
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
	must.Succeed(t, errors.Join(os.MkdirAll(state, 0o700), os.Chown(state, i.uid, i.gid), os.Chmod(i.path("tmp"), 0o777|os.ModeSticky)))
	command := strings.Fields(i.unit["ExecStart"][0])
	stderr = &bytes.Buffer{}
	cmd = exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Err = nil // the program is looked for in the directory
	cmd.Dir, cmd.Stderr = i.unit["WorkingDirectory"][0], stderr
	cmd.Env = append(slices.Clone(i.unit["Environment"]), more...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Credential: &syscall.Credential{Uid: uint32(i.uid), Gid: uint32(i.gid)}}
	must.Succeed(t, cmd.Start())
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
	must.Succeed(t, err)
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
		must.Succeed(t, errors.Join(os.WriteFile(configuration, []byte(text), 0o640), os.Chmod(configuration, 0o640), os.Chown(configuration, 0, i.gid)))
		socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: i.path("run/notify"), Net: "unixgram"})
		must.Succeed(t, err)
		t.Cleanup(func() { _ = socket.Close() })
		must.Succeed(t, os.Chmod(i.path("run/notify"), 0o777))
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
		must.Succeed(t, cmd.Process.Signal(syscall.SIGTERM))
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
		i.dpkg(t, "--install", released(t, ".deb"))
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

// A reload fails if the daemon refuses its configuration. With kill, systemd would report success.
func TestReloadOfTheUnitReportsErrors(t *testing.T) {
	t.Parallel()
	unit := parseUnit(read(t, "feedbridge.service"))
	want := strings.Replace(unit["ExecStart"][0], " run ", " reload ", 1)
	if got := unit["ExecReload"]; !slices.Equal(got, []string{want}) {
		t.Errorf("systemctl reload runs %q, want %q", got, want)
	}
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
	unit := strings.ReplaceAll(read(t, i.path("usr/lib/systemd/system/feedbridge.service")), "=/usr/bin/feedbridge", "="+i.path("usr/bin/feedbridge"))
	if _, err := user.Lookup("feedbridge"); err != nil {
		unit = strings.NewReplacer("User=feedbridge", "User=root", "Group=feedbridge", "Group=root").Replace(unit)
	}
	name := filepath.Join(t.TempDir(), "feedbridge.service")
	must.Succeed(t, os.WriteFile(name, []byte(unit), 0o644))
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", name).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
