package valkeyd

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/valkey-io/valkey-go"
)

const (
	readyWithin = 10 * time.Second
	pollEvery   = 5 * time.Millisecond
	stopWithin  = 3 * time.Second
	maxSocket   = 100 // bytes; some systems allow 104 in a socket's path
)

// Options say how a server is started. The zero value is a single server on a
// unix socket that keeps nothing on disk.
type Options struct {
	// Dir is the server's working directory, where it writes what Args make
	// it write. It must exist and stays after Stop. Empty: a temporary
	// directory that Stop removes.
	Dir string
	// TCP makes the server listen on a free port of 127.0.0.1 instead of a
	// unix socket.
	TCP bool
	// Args are further server arguments, such as "--appendonly", "yes". They
	// win over the ones set here.
	Args []string
	// Env are further environment variables, such as "TZ=UTC".
	Env []string
	// Cluster makes the server a cluster of one node that owns all slots.
	// It implies TCP and takes two seconds to start, as a cluster does.
	Cluster bool
}

// Server is a server started by [Start]. Its methods may be called from any
// goroutine.
type Server struct {
	opts    Options
	bin     string
	temp    string // socket, log and clock; data too unless Options.Dir is set
	port    int    // 0: the unix socket
	busPort int
	slots   string // of a cluster's master: the first and the last of them

	mu   sync.Mutex // held while the process is started or ended
	proc *process   // the last one started
}

// Find returns the path of valkey-server: the one on PATH, or the program that
// the environment variable EMQ_TEST_VALKEY_SERVER names. Where there is none,
// the error says how to install it and wraps [exec.ErrNotFound] or
// [os.ErrNotExist].
func Find() (string, error) {
	name := os.Getenv("EMQ_TEST_VALKEY_SERVER")
	if name == "" {
		name = "valkey-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("valkeyd: no Valkey server: %w; type `make valkey`, or install valkey-server "+
			"(on Debian the package valkey-server, in bookworm from backports)", err)
	}
	return path, nil
}

// Start starts a server and returns when it answers. It fails as [Find] does
// where no server is installed, with the server's last words when it ends
// early, and after 10 s without an answer.
func Start(opts Options) (*Server, error) {
	s, err := prepare(opts)
	if err != nil {
		return nil, err
	}
	if err := s.start(); err != nil {
		return nil, err
	}
	return s, nil
}

// prepare makes the server's directory.
func prepare(opts Options) (*Server, error) {
	bin, err := Find()
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "emq")
	if err != nil {
		return nil, fmt.Errorf("valkeyd: %w", err)
	}
	opts.TCP = opts.TCP || opts.Cluster
	s := &Server{opts: opts, bin: bin, temp: temp, slots: "0 16383"}
	if path := s.socket(); !opts.TCP && len(path) >= maxSocket {
		os.RemoveAll(temp)
		return nil, fmt.Errorf("valkeyd: the socket path %s has %d bytes, allowed are %d: set TMPDIR to a shorter directory",
			path, len(path), maxSocket-1)
	}
	return s, nil
}

// start chooses the address and runs the server on it. It removes the
// server's directory when it fails.
func (s *Server) start() error {
	for try := 1; ; try++ {
		err := s.choosePorts()
		if err == nil {
			err = s.Restart()
		}
		if err == nil {
			return nil
		}
		// Another process may take a port between the choice and its use.
		if !s.opts.TCP || try == 3 || !strings.Contains(err.Error(), "in use") {
			s.Stop()
			return err
		}
	}
}

func (s *Server) choosePorts() error {
	if !s.opts.TCP {
		return nil
	}
	for _, port := range []*int{&s.port, &s.busPort} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("valkeyd: %w", err)
		}
		defer l.Close()
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return nil
}

func (s *Server) socket() string { return filepath.Join(s.temp, "valkey.sock") }
func (s *Server) log() string    { return filepath.Join(s.temp, "valkey.log") }

func (s *Server) args() []string {
	dir := s.opts.Dir
	if dir == "" {
		dir = s.temp
	}
	args := []string{
		"--dir", dir, "--bind", "127.0.0.1", "--port", strconv.Itoa(s.port),
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction",
		"--enable-debug-command", "local", "--daemonize", "no",
	}
	if !s.opts.TCP {
		args = append(args, "--unixsocket", s.socket())
	}
	if s.opts.Cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(s.busPort),
			"--cluster-announce-ip", "127.0.0.1")
	}
	return append(args, s.opts.Args...)
}

// URL returns the address in the form that [valkey.ParseURL] reads:
// unix:///path or valkey://127.0.0.1:port.
func (s *Server) URL() string {
	if s.opts.TCP {
		return "valkey://127.0.0.1:" + strconv.Itoa(s.port)
	}
	return (&url.URL{Scheme: "unix", Path: s.socket()}).String()
}

// Options returns what [valkey.NewClient] needs to reach the server.
func (s *Server) Options() valkey.ClientOption {
	return valkey.MustParseURL(s.URL())
}

// Pid returns the process id of the server, or of the last one when it ended.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.cmd.Process.Pid
}

// Stop ends the server, by force after 3 s, and removes its temporary
// directory. It returns when the process is gone; a second call does nothing.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(syscall.SIGTERM)
	os.RemoveAll(s.temp)
}

// Kill ends the server by SIGKILL, as a crash would, and keeps its directory
// for [Server.Restart]. It returns when the process is gone.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(syscall.SIGKILL)
}

// end signals the process, if it runs, paused or not, and waits for it.
func (s *Server) end(sig syscall.Signal) {
	if s.proc == nil {
		return
	}
	s.proc.cmd.Process.Signal(sig)
	s.proc.cmd.Process.Signal(sigCont)
	select {
	case <-s.proc.done:
	case <-time.After(stopWithin):
		s.proc.cmd.Process.Kill()
		<-s.proc.done
	}
}

// Restart starts the server again in the same directory and at the same
// address, after ending it if it runs. What it had in memory is gone unless
// Options.Args made it persistent. Errors are those of [Start]. It cannot
// follow [Server.Stop].
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(syscall.SIGTERM)

	log, err := os.Create(s.log())
	if err != nil {
		return fmt.Errorf("valkeyd: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(s.bin, s.args()...)
	cmd.Env = append(os.Environ(), s.opts.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := launch(cmd)
	if err != nil {
		return fmt.Errorf("valkeyd: %w", err)
	}
	s.proc = proc

	giveUp := time.After(readyWithin)
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		if err = s.ready(); err == nil {
			return nil
		}
		select {
		case <-poll.C:
		case <-proc.done:
			return fmt.Errorf("valkeyd: %s ended at start: %v\n%s", s.bin, proc.cmd.ProcessState, s.lastWords())
		case <-giveUp:
			s.end(syscall.SIGKILL)
			return fmt.Errorf("valkeyd: %s gave no answer within %v: %w\n%s", s.bin, readyWithin, err, s.lastWords())
		}
	}
}

// ready says why the server cannot be used yet.
func (s *Server) ready() error {
	reply, err := s.ask("PING")
	if err != nil || !s.opts.Cluster {
		return err
	}
	if reply, err = s.ask("CLUSTER INFO"); err != nil {
		return err
	}
	if strings.Contains(reply, "cluster_slots_assigned:0\r") {
		if reply, err = s.ask("CLUSTER ADDSLOTSRANGE " + s.slots); err != nil {
			return err
		}
	}
	if !strings.Contains(reply, "cluster_state:ok") {
		return errors.New("the cluster is not ready")
	}
	return nil
}

// ask sends one command on a new connection and returns the start of its
// reply. An answer that only asks for a password counts as one.
func (s *Server) ask(command string) (string, error) {
	network, address := "unix", s.socket()
	if s.opts.TCP {
		network, address = "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
	}
	conn, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
		return "", err
	}
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	if err != nil {
		return "", err
	}
	reply := string(buf[:n])
	if strings.HasPrefix(reply, "-") && !strings.HasPrefix(reply, "-NOAUTH") {
		return "", errors.New(strings.TrimSpace(reply[1:]))
	}
	return reply, nil
}

// lastWords returns the end of the server's log.
func (s *Server) lastWords() string {
	text, _ := os.ReadFile(s.log())
	return strings.TrimSpace(string(text[max(0, len(text)-1000):]))
}

// Pause stops the server without ending it (SIGSTOP): connections stay open
// and nothing is answered until [Server.Resume].
func (s *Server) Pause() error { return s.signal(sigStop) }

// Resume lets a paused server go on (SIGCONT).
func (s *Server) Resume() error { return s.signal(sigCont) }

func (s *Server) signal(sig os.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.proc.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("valkeyd: %v: %w", sig, err)
	}
	return nil
}
