package kafkatest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// process is a child that does not outlive this process, where the system can
// see to that.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended
	err  error         // how it ended; to be read after done
}

func start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux takes the end of the thread that started the child for the death of
		// the parent. This thread lives as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		dieWithParent(cmd)
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

// run runs a command to its end and returns its standard output. The error contains all of its
// output.
func run(cmd *exec.Cmd) (stdout []byte, err error) {
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = 5 * time.Second // for grandchildren that hold the pipes
	p, err := start(cmd)
	if err != nil {
		return nil, err
	}
	if <-p.done; p.err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", filepath.Base(cmd.Path), p.err, &out, &errOut)
	}
	return out.Bytes(), nil
}

// kill ends the child at once, and returns when it has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended already
	<-p.done
}

// terminate asks the child to end. If it has not after limit, it is killed.
func (p *process) terminate(limit time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(limit):
		p.kill()
		return fmt.Errorf("killed, for it did not stop within %v", limit)
	}
}
