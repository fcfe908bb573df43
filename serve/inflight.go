package serve

// inflight is a page that is being built, from its announcement until it is cached. The build of
// its successor waits for its summary, and then finds the topic read up to there. It need not wait
// until the messages of the page are confirmed: if retention has deleted some of them meanwhile,
// the successor's own messages are not confirmed either.
type inflight struct {
	read chan struct{} // closed when the summary is known, or the build has failed
	// These belong to the pageBuilder's mu.
	closed  bool
	started bool     // a build has a slot
	sum     *summary // nil if it is not known
}

// announceBuild returns the build of a page, which it adds if there is none. The caller calls
// endBuild.
func (pb *pageBuilder) announceBuild(key pageKey) *inflight {
	pb.mu.Lock()
	defer pb.mu.Unlock()
	b := pb.inflight[key]
	if b == nil {
		b = &inflight{read: make(chan struct{})}
		pb.inflight[key] = b
	}
	return b
}

// startBuild records that a build has its slot, so that other builds may wait for it. They have slots
// themselves: if they waited for a build without one, it might never get one.
func (pb *pageBuilder) startBuild(b *inflight) {
	pb.mu.Lock()
	defer pb.mu.Unlock()
	b.started = true
}

// startedBuild returns the build of a page that has started, nil if there is none.
func (pb *pageBuilder) startedBuild(key pageKey) *inflight {
	pb.mu.Lock()
	defer pb.mu.Unlock()
	if b := pb.inflight[key]; b != nil && b.started {
		return b
	}
	return nil
}

// setSummary sets the summary of a page that was read.
func (pb *pageBuilder) setSummary(b *inflight, sum *summary) {
	pb.mu.Lock()
	defer pb.mu.Unlock()
	b.sum = sum
	b.closeRead()
}

// summaryOfBuild returns the summary of a build, nil if it is not known.
func (pb *pageBuilder) summaryOfBuild(b *inflight) *summary {
	pb.mu.Lock()
	defer pb.mu.Unlock()
	return b.sum
}

// endBuild ends a build. The page is in the cache, or the build has failed.
func (pb *pageBuilder) endBuild(key pageKey, b *inflight) {
	pb.mu.Lock()
	defer pb.mu.Unlock()
	b.closeRead()
	if pb.inflight[key] == b {
		delete(pb.inflight, key)
	}
}

func (b *inflight) closeRead() {
	if !b.closed {
		b.closed = true
		close(b.read)
	}
}
