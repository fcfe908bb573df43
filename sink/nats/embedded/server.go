//go:build !noembedded

package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/nats-io/nats-server/v2/server"
)

// defaultListen is the address on which a server listens by default.
const defaultListen = "127.0.0.1:4222"

// Built reports whether the program contains the server.
const Built = true

// startTimeout bounds the time in which a server opens its store and listens.
const startTimeout = time.Minute

// Server is a running server.
type Server struct {
	server *server.Server
	disk   *diskLimit
	lock   *flock.Flock
	once   sync.Once
}

// Start starts a server, and returns when clients can connect. The server writes messages to
// the disk before it acknowledges them, so that they survive a power cut. While the disk is
// full, up to a reserve of a twentieth or 1 GiB, it refuses messages with the error 10002.
func Start(cfg Config) (*Server, error) { return startServer(cfg, measureDisk) }

// startServer starts a server that measures its disk by measure.
func startServer(cfg Config, measure measureSpace) (*Server, error) {
	if cfg.Listen == "" {
		cfg.Listen = defaultListen
	}
	host, port, err := splitListen(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS: listen %q: %w", cfg.Listen, err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, unusableDir(err)
	}
	// Two servers on one store would overwrite each other's data. The kernel releases the
	// lock when the process ends.
	lock := flock.New(filepath.Join(cfg.Dir, "lock"))
	switch locked, err := lock.TryLock(); {
	case err != nil:
		return nil, unusableDir(err)
	case !locked:
		return nil, fmt.Errorf("embedded NATS: %w %s; stop that feedbridge, or set another data_dir", ErrLocked, cfg.Dir)
	}
	s := &Server{lock: lock}
	if err := s.startServer(cfg, host, port, measure); err != nil {
		s.Close()
		return nil, fmt.Errorf("embedded NATS: %w", err)
	}
	return s, nil
}

// unusableDir returns the error of a directory that cannot be made or locked, with its cure.
func unusableDir(err error) error {
	return fmt.Errorf("embedded NATS: %w; set data_dir to a directory that this user may write to", err)
}

func (s *Server) startServer(cfg Config, host string, port int, measure measureSpace) error {
	if err := checkFree(cfg.Listen); err != nil {
		return err
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "feedbridge",
		Host:       host,
		Port:       port,
		MaxPayload: MaxPayload,
		JetStream:  true,
		StoreDir:   cfg.Dir,
		SyncAlways: true,
		// The limit of the disk is that of the account; see diskLimit.
		JetStreamMaxStore: noLimit,
		NoSigs:            true, // the process handles signals itself
	})
	if err != nil {
		return err
	}
	s.server = srv
	log := &logger{log: cfg.Log, fatal: make(chan string, 1)}
	srv.SetLoggerV2(log, false, false, false)
	ready := make(chan bool, 1)
	go func() {
		srv.Start()
		ready <- srv.ReadyForConnections(startTimeout)
	}()
	select {
	case reason := <-log.fatal:
		return errors.New(reason)
	case ok := <-ready:
		if !ok {
			return fmt.Errorf("not ready within %v", startTimeout)
		}
	}
	if !srv.JetStreamEnabled() {
		return fmt.Errorf("JetStream does not start on %s; see the warnings in the log", cfg.Dir)
	}
	s.disk, err = startDiskLimit(srv, cfg.Dir, measure, cfg.Log)
	return err
}

// URL returns the URL for clients.
func (s *Server) URL() string { return s.server.ClientURL() }

// Close stops the server, waits until its store is closed, and unlocks the
// directory.
func (s *Server) Close() {
	s.once.Do(func() {
		if s.disk != nil {
			s.disk.close()
		}
		if s.server != nil {
			s.server.Shutdown()
			s.server.WaitForShutdown()
		}
		// The kernel unlocks at the latest when the process ends.
		_ = s.lock.Close()
	})
}

func splitListen(listen string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%q is not a port", p)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return host, port, nil
}

// checkFree returns a clear error if the port is in use, before the server is started.
func checkFree(listen string) error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use, perhaps by a NATS server: configure a bus with url: nats://%[1]s to use that one, or set buses.NAME.embedded.listen to another address", listen)
	}
	if err != nil {
		return fmt.Errorf("%w; set buses.NAME.embedded.listen to another address", err)
	}
	return l.Close()
}

// logger passes the log of the server to log.
type logger struct {
	log   *slog.Logger
	fatal chan string // the first reason why the server cannot run
}

func (l *logger) Noticef(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l *logger) Debugf(format string, args ...any)  { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l *logger) Tracef(format string, args ...any)  { l.log.Debug(fmt.Sprintf(format, args...)) }
func (l *logger) Warnf(format string, args ...any)   { l.log.Warn(fmt.Sprintf(format, args...)) }
func (l *logger) Errorf(format string, args ...any)  { l.log.Warn(fmt.Sprintf(format, args...)) }

func (l *logger) Fatalf(format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	l.log.Warn(reason)
	select {
	case l.fatal <- reason:
	default:
	}
}
