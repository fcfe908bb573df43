//go:build chaos && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

// writeAccount writes the account of all clients, with a limit of its files in bytes, 0 for none, and
// its subject mappings. A server reads it when it starts or is told to.
func (b *natsBus) writeAccount(limit uint64, mappings string) error {
	jetStream := "enabled"
	if limit > 0 {
		jetStream = fmt.Sprintf("{max_file: %d}", limit)
	}
	text := fmt.Sprintf("accounts { %[1]s { jetstream: %[2]s, users: [{user: %[1]s, password: %[1]s}], mappings { %[3]s } } }\n", natsAccount, jetStream, mappings)
	return os.WriteFile(b.accountFile, []byte(text), 0o600)
}

// changeAccount makes all servers, which run, read another account. Connections stay.
func (b *natsBus) changeAccount(ctx context.Context, limit uint64, mappings string) error {
	if err := b.writeAccount(limit, mappings); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	loaded := func(i int) (at time.Time, err error) {
		var state struct {
			At time.Time `json:"config_load_time"`
		}
		err = getJSON(ctx, b.monitor[i]+"/varz", &state)
		return state.At, err
	}
	for i, n := range b.nodes {
		before, err := loaded(i)
		if err != nil {
			return err
		}
		n.run.signal(syscall.SIGHUP)
		for at := before; !at.After(before); {
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return fmt.Errorf("%s does not read its configuration again; see %s: %w", n.name, n.log(), err)
			}
			if at, err = loaded(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// setUp marks all nodes as up or not: topics need not move while their account takes nothing.
func setUp(nodes []*node, up bool) {
	for _, n := range nodes {
		n.up.Store(up)
	}
}

// limitAccount leaves the account room for a part of a commit or some commits, for some time. A batch for
// which there is no room may be stored in part. All connections stay.
func limitAccount(ctx context.Context, s *scenario) error {
	b := s.bus.(*natsBus)
	attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	info, err := b.js.AccountInfo(attempt)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotInjected, err)
	}
	room := uint64(s.random.IntN(300<<10) * len(s.nodes))
	setUp(s.nodes, false)
	defer setUp(s.nodes, true)
	err = b.changeAccount(ctx, info.Store+room, "")
	s.burst()
	if s.random.IntN(2) == 0 {
		// A copy that reads now commits when there is room again.
		slow := s.anyFeed()
		slow.slow.Store(int64(s.between(1000, 6000)))
		defer slow.slowDown(0)
	}
	_ = pause(ctx, s.between(500, 6000))
	return errors.Join(err, b.changeAccount(ctx, 0, ""))
}

// movedPrefix makes the subject to which entities of a topic are moved.
const movedPrefix = "moved."

// mapSubject has the account move the entities of a topic to another subject of its stream for some
// time. The feed must halt at the next entity, whatever happens until then. catchUp moves its
// checkpoint back, as its error says.
func mapSubject(ctx context.Context, s *scenario) error {
	b, f := s.bus.(*natsBus), s.feedToMove()
	attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, info, err := b.stream(attempt, f.topic)
	if err == nil && !slices.Contains(info.Config.Subjects, movedPrefix+f.topic) {
		config := info.Config
		config.Subjects = append(config.Subjects, movedPrefix+f.topic)
		_, err = b.js.UpdateStream(attempt, config)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotInjected, err)
	}
	setUp(s.nodes, false)
	defer setUp(s.nodes, true)
	err = b.changeAccount(ctx, 0, fmt.Sprintf("%q: %q", f.topic, movedPrefix+f.topic))
	f.grow(1 + s.random.IntN(1500))
	_ = pause(ctx, s.between(0, 4000))
	if s.random.IntN(2) == 0 {
		// It stores a checkpoint without entities.
		_ = s.pauseFeed(ctx, s.anyCopy(), f, s.between(0, 1000))
	}
	err = errors.Join(err, b.changeAccount(ctx, 0, ""))
	f.grow(1 + s.random.IntN(50))
	return err
}
