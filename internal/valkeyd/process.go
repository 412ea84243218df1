package valkeyd

import (
	"os/exec"
	"runtime"
)

// process is a child and the goroutine that waits for it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child is gone; ProcessState is set then
}

// launch starts cmd so that it does not outlive this process where the system
// can see to that. Linux sends the parent-death signal when the thread that
// started the child ends, so that thread is kept for as long as the child
// lives.
func launch(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr = attributes()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		release := keep(cmd.Process.Pid)
		cmd.Wait()
		release()
		close(p.done)
	}()
	return p, <-started
}
