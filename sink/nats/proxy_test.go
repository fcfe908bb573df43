package nats_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

// proxy forwards connections between clients and a server, and can break them.
type proxy struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	conns []net.Conn
	// mute drops the server's output.
	mute bool
	// only, while more than 0, is how many bytes of it pass before that.
	only int
	// kept, while not nil, has what clients say, for each connection to the server
	// that it is kept back from.
	kept map[net.Conn][]byte
	// watch, if it is set, is called with what clients say before that is passed on.
	watch func(data []byte)
	// change, if it is set, is called with what clients say (false) or the server answers (true), and returns
	// what is passed on, which is not longer.
	change map[bool]func(data []byte) []byte
	// rate, if it is set, is how many bytes a second clients can send.
	rate int
}

func runProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	p := &proxy{listener: l, server: server}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.server)
			if err != nil {
				client.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, client, server)
			p.mu.Unlock()
			group.Go(func() { p.pass(client, server, false) })
			group.Go(func() { p.pass(server, client, true) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.release()
		p.cut()
		group.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) pass(from, to net.Conn, answers bool) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		watch, change := p.watch, p.change[answers]
		p.mu.Unlock()
		if change != nil {
			n = copy(buf, change(buf[:n]))
		}
		if !answers && watch != nil {
			watch(buf[:n])
		}
		p.mu.Lock()
		mute, rate := p.mute, p.rate
		keep := !answers && p.kept != nil
		if keep {
			p.kept[to] = append(p.kept[to], buf[:n]...)
		}
		if answers && p.only > 0 {
			n = min(n, p.only)
			p.only -= n
			p.mute = p.only == 0
		}
		p.mu.Unlock()
		if answers && mute || keep {
			continue
		}
		if !answers && rate > 0 {
			time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) set(mute bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute, p.only = mute, 0
}

// muteAfter drops the server's output after a number of bytes.
func (p *proxy) muteAfter(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.only = n
}

// slow limits the bytes a second that clients can send.
func (p *proxy) slow(rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = rate
}

func (p *proxy) setWatch(watch func(data []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = watch
}

// say makes the server of all connections say a text.
func (p *proxy) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 0; i < len(p.conns); i += 2 { // see runProxy
		_, _ = p.conns[i].Write([]byte(text))
	}
}

func (p *proxy) setChange(answers bool, change func(data []byte) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = map[bool]func([]byte) []byte{answers: change}
}

func (p *proxy) keepBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = map[net.Conn][]byte{}
}

// keeps reports whether the withheld bytes contain a text.
func (p *proxy) keeps(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, said := range p.kept {
		if bytes.Contains(said, []byte(text)) {
			return true
		}
	}
	return false
}

// release sends the withheld bytes.
func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for server, said := range p.kept {
		_, _ = server.Write(said)
	}
	p.kept = nil
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}
