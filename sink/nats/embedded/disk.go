//go:build !noembedded

package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// followDisk is how often the limit is set from the free space.
	followDisk = 5 * time.Second
	// mostReserve and reserveShare are how much of the disk the streams leave free, in bytes and
	// as a share of its size, whichever is less. A disk without any space would disable
	// JetStream until a restart.
	mostReserve  = 1 << 30
	reserveShare = 20
	// noLimit is the limit of the server, in bytes. It cannot be lowered while the server runs,
	// so that of the account holds.
	noLimit = 1 << 60
)

// space is the size and the free space of a disk, in bytes.
type space struct{ free, size int64 }

// measureSpace returns the space of the disk that has dir: measureDisk, except in tests.
type measureSpace func(dir string) (space, error)

// diskLimit bounds the streams by the free space of their disk, which other programs use too.
// It is the storage limit of the only account: the size of the streams plus the free space,
// without the reserve.
type diskLimit struct {
	account *server.Account
	dir     string
	measure measureSpace
	log     *slog.Logger

	stop    context.CancelFunc
	stopped sync.WaitGroup
	isFull  bool
}

// startDiskLimit sets the limit, and goes on to set it until it is closed.
func startDiskLimit(srv *server.Server, dir string, measure measureSpace, log *slog.Logger) (*diskLimit, error) {
	ctx, stop := context.WithCancel(context.Background())
	d := &diskLimit{account: srv.GlobalAccount(), dir: dir, measure: measure, log: log, stop: stop}
	if err := d.update(); err != nil {
		stop()
		return nil, err
	}
	d.stopped.Go(func() { d.follow(ctx) })
	return d, nil
}

func (d *diskLimit) follow(ctx context.Context) {
	ticker := time.NewTicker(followDisk)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := d.update(); err != nil && ctx.Err() == nil {
				d.log.Warn("cannot set the limit of the embedded server; the one before stays", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// update sets the limit from the free space of now.
func (d *diskLimit) update() error {
	now, err := d.measure(d.dir)
	if err != nil {
		return fmt.Errorf("measure the disk of %s: %w", d.dir, err)
	}
	reserve := min(mostReserve, now.size/reserveShare)
	room := max(0, now.free-reserve)
	limits := map[string]server.JetStreamAccountLimits{"": {
		MaxMemory: -1, MaxStore: int64(d.account.JetStreamUsage().Store) + room, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
		MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}}
	if err := d.account.UpdateJetStreamLimits(limits); err != nil {
		return err
	}
	if full := room < reserve/2; full != d.isFull {
		d.isFull = full
		if full {
			d.log.Error("the disk of the embedded server is full; its streams take no more messages", "dir", d.dir, "free", now.free, "reserve", reserve)
		} else {
			d.log.Info("the disk of the embedded server has room again", "dir", d.dir, "free", now.free)
		}
	}
	return nil
}

func (d *diskLimit) close() {
	d.stop()
	d.stopped.Wait()
}
