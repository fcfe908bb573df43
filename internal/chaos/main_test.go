//go:build chaos && linux

package chaos

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/kafkatest"
)

var flags struct {
	bus      string
	nodes    int
	faults   int
	rounds   int
	only     string
	duration time.Duration
	side     int
	seed     uint64
	keep     bool
	fleet    string
	kafka    string
	upgrade  string
}

func init() {
	flag.StringVar(&flags.bus, "bus", "", "the bus, nats or kafka; both if empty")
	flag.IntVar(&flags.nodes, "nodes", 0, "the number of nodes, 1 or 3; both if 0")
	flag.IntVar(&flags.faults, "faults", 0, "end after this number of faults on each bus; 0 for no limit")
	flag.IntVar(&flags.rounds, "rounds", 0, "end after this number of rounds of each cluster, whatever the time; 0 for no limit")
	flag.StringVar(&flags.only, "only", "", "inject into the cluster only faults whose name contains this text")
	flag.DurationVar(&flags.duration, "duration", time.Minute, "how long faults are injected, without -rounds")
	flag.IntVar(&flags.side, "side", 1, "the number of scenarios of each bus and size side by side")
	flag.Uint64Var(&flags.seed, "seed", 0, "draws the faults; 0 for a random one")
	flag.StringVar(&flags.fleet, "fleet", "", "whether the copies of a scenario share the feeds as a fleet, yes or no; drawn if empty")
	flag.StringVar(&flags.kafka, "kafka", "", "the version of Kafka, 2.8 or newer; that of the other tests if empty")
	flag.StringVar(&flags.upgrade, "upgrade", "", "the version of Kafka to which each node is upgraded, one at a time")
	flag.BoolVar(&flags.keep, "keep", false, "keep logs also if nothing was wrong")
}

// The variables that the first process sets for the second, see TestMain.
const (
	dirVariable      = "CHAOS_DIR"      // has the programs, and gets logs and stores
	isolatedVariable = "CHAOS_ISOLATED" // set if the process has namespaces of its own
	noKafkaVariable  = "CHAOS_NO_KAFKA" // why Kafka cannot be run
)

// TestMain runs twice. The first process builds what needs the network, and runs
// itself again in new namespaces. The second one runs the tests.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(dirVariable) != "" {
		isolateSelf()
		os.Exit(m.Run())
	}
	code, err := runIsolated()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// runIsolated builds the programs, runs the tests in a second process, and returns
// its exit code. The directory stays if that is not 0.
func runIsolated() (code int, err error) {
	dir, err := os.MkdirTemp("", "feedbridge-chaos-")
	if err != nil {
		return 1, err
	}
	defer func() {
		if code == 0 && err == nil && !flags.keep {
			_ = os.RemoveAll(dir)
		} else {
			fmt.Fprintln(os.Stderr, "chaos: logs and stores are in", dir)
		}
	}()
	env := append(os.Environ(), dirVariable+"="+dir)
	if flags.seed == 0 {
		flags.seed = uint64(rand.Uint32())
	}
	packages := []string{"github.com/feedbridge/feedbridge/cmd/feedbridge", "github.com/nats-io/nats-server/v2"}
	build := exec.Command("go", append([]string{"build", "-o", dir + "/"}, packages...)...)
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("go build: %w\n%s", err, out)
	}
	if flags.bus != "nats" {
		for _, version := range []string{flags.kafka, flags.upgrade} {
			missing, err := kafkatest.Install(version)
			if err != nil {
				return 1, err
			}
			if missing != "" {
				env = append(env, noKafkaVariable+"="+missing)
			}
		}
	}
	args := append(os.Args[1:], fmt.Sprintf("-seed=%d", flags.seed))
	var cmd *process
	for _, namespaces := range []bool{true, false} {
		c := exec.Command(os.Args[0], args...)
		c.Env = env
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		if namespaces {
			c.Env = append(c.Env, isolatedVariable+"=1")
			c.SysProcAttr = isolation()
		}
		if cmd, err = startProcess(c); err == nil {
			break
		}
		fmt.Fprintf(os.Stderr, "chaos: no namespaces: %v\n", err)
	}
	if err != nil {
		return 1, err
	}
	<-cmd.done
	if exit, ok := errors.AsType[*exec.ExitError](cmd.err); ok {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, cmd.err
}

// isolation returns the attributes of a process with namespaces of its own for
// mounts, processes and, if there is iproute2, the network. When the process ends,
// the kernel kills all processes in its namespace and removes its mounts and
// network devices.
func isolation() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	if _, err := exec.LookPath("ip"); err == nil {
		attr.Cloneflags |= syscall.CLONE_NEWNET
	}
	if uid := os.Getuid(); uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

// machine describes what this machine allows.
var machine struct {
	mounts  bool
	network bool   // each node can have a network namespace
	why     string // the reason if one of them is missing
}

// isolateSelf sets up the namespaces that the process was started in.
func isolateSelf() {
	if os.Getenv(isolatedVariable) == "" {
		machine.why = "the machine allows no namespaces"
		return
	}
	// A mount must not be seen outside. ip keeps its namespaces in /run/netns.
	err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	if err == nil {
		err = syscall.Mount("proc", "/proc", "proc", 0, "")
	}
	if err == nil {
		err = syscall.Mount("tmpfs", "/run", "tmpfs", 0, "")
	}
	if err != nil {
		machine.why = fmt.Sprintf("mount: %v", err)
		return
	}
	machine.mounts = true
	if _, err := exec.LookPath("ip"); err != nil {
		machine.why = "iproute2 is not installed"
		return
	}
	if err := ip("link", "set", "lo", "up"); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1) // nothing can be reached
	}
	if err := startNetwork(); err != nil {
		machine.why = err.Error()
		return
	}
	machine.network = true
}

// chaosDir returns a path in the directory of the run.
func chaosDir(names ...string) string {
	return filepath.Join(append([]string{os.Getenv(dirVariable)}, names...)...)
}

// environment returns the environment for a process of the scenario. A variable
// with the program's prefix would be taken for its configuration.
func environment() []string {
	var env []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "FEEDBRIDGE_") {
			env = append(env, variable)
		}
	}
	return env
}
