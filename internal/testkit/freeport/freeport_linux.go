// Package freeport reserves ports for servers that tests start, stop and start again.
package freeport

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// Reserve returns a port of 127.0.0.1 that is reserved until the process ends. A connection to it
// is refused until a server listens there, which may be a server of this process or of another
// one. The system gives the port to nobody else: to no listener, and to no client as its own port.
//
// A listener that is closed again would not do. A process that is being forked has all descriptors
// until it executes its program, so a listener can outlive its Close: meanwhile its port accepts
// connections, which are reset later, and no server can listen there. The socket that reserves the
// port does not listen, and Linux lets a server bind the same port if both sockets have
// SO_REUSEADDR, which net.Listen and Java set.
func Reserve() (int, error) {
	_, port, err := reserve()
	return port, err
}

// reserve is Reserve. The port is reserved until the socket is closed.
func reserve() (socket, port int, err error) {
	socket, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, os.NewSyscallError("socket", err)
	}
	port, err = bind(socket)
	if err != nil {
		return 0, 0, errors.Join(fmt.Errorf("reserve a port: %w", err), syscall.Close(socket))
	}
	return socket, port, nil
}

func bind(socket int) (int, error) {
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte(net.IPv4(127, 0, 0, 1).To4())}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	address, err := syscall.Getsockname(socket)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return address.(*syscall.SockaddrInet4).Port, nil
}
