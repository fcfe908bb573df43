//go:build chaos && linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
)

// process is a child that ends with this process at the latest.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended
	err  error         // how it ended; valid after done
}

// startProcess starts a child. It keeps the attributes that cmd has.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread ends that started the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// startLogged starts a child whose output is appended to a file.
func startLogged(cmd *exec.Cmd, path string) (*process, error) {
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has it
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = log, log
	return startProcess(cmd)
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // an error means that it has ended

// kill ends the child by SIGKILL, also while it is stopped, and returns when it
// has ended.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// ended reports whether the child has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Ports for servers are below those that Linux assigns to outgoing connections: a client could
// be given the port of a server that is down, and keep it from coming back.
const firstPort, endPort = 10000, 15000

// freePort returns a port of a host that no process listens on. It does not return a port twice
// within a short time.
func freePort(host string) (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(endPort-firstPort)
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			l.Close()
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port on %s", host)
}
