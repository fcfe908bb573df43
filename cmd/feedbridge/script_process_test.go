package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// process is one that a script has started.
type process struct {
	cmd   *exec.Cmd
	in    io.Closer
	ended chan struct{} // closed when err is set
	err   error
}

func start(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, 100)
	s, name, args := stageOf(ts), args[0], args[1:]
	environ := append([]string{}, s.environ...)
	for len(args) > 1 && strings.Contains(args[0], "=") {
		environ, args = append(environ, args[0]), args[1:]
	}
	path, err := exec.LookPath(args[0])
	ts.Check(err)
	p := &process{cmd: exec.Command(path, args[1:]...), ended: make(chan struct{})}
	p.cmd.Env = environ
	p.cmd.Dir = ts.MkAbs(".")
	out, err := os.Create(ts.MkAbs(name + ".out"))
	ts.Check(err)
	errw, err := os.Create(ts.MkAbs(name + ".err"))
	ts.Check(err)
	p.cmd.Stdout, p.cmd.Stderr = out, errw
	// Servers run until their standard input ends.
	p.in, err = p.cmd.StdinPipe()
	ts.Check(err)
	ts.Check(errors.Join(p.cmd.Start(), out.Close(), errw.Close()))
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	if before := s.processes[name]; before != nil {
		before.kill()
	}
	s.processes[name] = p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
	_ = p.in.Close()
}

func processOf(ts *testscript.TestScript, name string) *process {
	p := stageOf(ts).processes[name]
	if p == nil {
		ts.Fatalf("no process was started as %s", name)
	}
	return p
}

var signals = map[string]os.Signal{
	"INT": os.Interrupt, "TERM": syscall.SIGTERM, "KILL": os.Kill, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT, "HUP": syscall.SIGHUP,
}

func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, 3)
	sig, p := signals[args[1]], processOf(ts, args[0])
	if sig == nil {
		ts.Fatalf("there is no signal %s", args[1])
	}
	ts.Check(p.cmd.Process.Signal(sig))
	if sig == syscall.SIGSTOP {
		ts.Check(waitUntilStopped(p.cmd.Process.Pid))
	}
	if len(args) == 2 {
		return
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-ticker.C {
		select {
		case <-p.ended:
			return
		default:
			_ = p.cmd.Process.Signal(sig) // it may have ended meanwhile
		}
	}
}

// waitUntilStopped waits until all threads of a child are stopped. While the thread that handles
// the signal waits for a processor, the others go on, so a server could still answer a request.
// The system reports each stop once, so a script stops a process that runs.
func waitUntilStopped(pid int) error {
	for {
		_, err := syscall.Wait4(pid, nil, syscall.WUNTRACED, nil)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// ends waits for the end of a process, and checks its exit code, which is -1 if
// it was killed by a signal.
func ends(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, 2)
	code, err := strconv.Atoi(args[1])
	ts.Check(err)
	p := processOf(ts, args[0])
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		ts.Fatalf("%s did not end within %v:\n%s", args[0], patience, ts.ReadFile(args[0]+".err"))
	}
	if _, ok := errors.AsType[*exec.ExitError](p.err); p.err != nil && !ok {
		ts.Fatalf("%s: %v", args[0], p.err)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		ts.Fatalf("%s ended with %d, want %d:\n%s", args[0], got, code, ts.ReadFile(args[0]+".err"))
	}
}

// exits runs a command to its end, and checks its exit code. Its output can be checked with
// stdout and stderr.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, 100)
	code, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != code {
		ts.Fatalf("exit code %d, want %d", got, code)
	}
}

// typed runs the commands of the program that a section of a document shows, as they are typed there, but for the
// URLs that are replaced. The command run is started as the process daemon, and those after it wait for it.
func typed(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, 100)
	n := 0
	for line := range strings.Lines(readSection(ts, args)) {
		command, isTyped := strings.CutPrefix(line, "$ ./feedbridge ")
		if !isTyped {
			continue
		}
		n++
		command, _, _ = strings.Cut(command, " # ")
		command = strings.TrimSpace(command)
		if !strings.HasPrefix(command, "run ") {
			ts.Check(ts.Exec("sh", "-c", "./feedbridge "+command))
			continue
		}
		start(ts, false, append([]string{"daemon", "FEEDBRIDGE_ADMIN_LISTEN=127.0.0.1:0", "FEEDBRIDGE_BUSES_MAIN_EMBEDDED_LISTEN=127.0.0.1:0", "feedbridge"}, strings.Fields(command)...))
		await(ts, false, []string{"daemon.err", `"status":"(http[^"]+)"`, "STATUS"})
	}
	if n == 0 {
		ts.Fatalf("%s shows no command in the section %s", args[0], args[1])
	}
}

// written writes the configurations that a section of a document shows to the files that their first lines name,
// but for the URLs that are replaced.
func written(ts *testscript.TestScript, neg bool, args []string) {
	want(ts, neg, args, 2, 100)
	blocks := strings.Split(readSection(ts, args), "\n```yaml\n# ")[1:]
	for _, block := range blocks {
		name, text, _ := strings.Cut(block, "\n")
		text, _, _ = strings.Cut(text, "\n```\n")
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
	if len(blocks) == 0 {
		ts.Fatalf("%s shows no configuration in the section %s", args[0], args[1])
	}
}

// readSection returns a section of a document: args are the page, the section, and pairs of a text and its replacement.
func readSection(ts *testscript.TestScript, args []string) string {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", args[0]))
	ts.Check(err)
	_, section, _ := strings.Cut(string(data), "\n## "+args[1]+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	return strings.NewReplacer(args[2:]...).Replace(section)
}
