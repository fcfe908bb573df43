package kafkatest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// clusterID is the same for all brokers, each of which is a cluster of its own.
const clusterID = "ZmVlZGJyaWRnZS10ZXN0cw"

// jvm returns a command that runs a class, or a source file, of the kit.
func (k kit) jvm(ctx context.Context, flags []string, args ...string) *exec.Cmd {
	all := []string{
		"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		// It warns of each class that it cannot archive.
		"-Xlog:disable", "-Xlog:all=error:stderr",
	}
	all = append(all, flags...)
	all = append(all, "-cp", k.classPath)
	return exec.CommandContext(ctx, k.java, append(all, args...)...)
}

// archived are the flags to start from the archive of loaded classes. A JVM that
// cannot use it starts without, and more slowly.
func (k kit) archived() []string {
	if !exists(k.archive) {
		return nil
	}
	return []string{"-Xshare:auto", "-XX:SharedArchiveFile=" + k.archive}
}

// prepare makes the store and the class archive of the kit in dir, for one version of Java.
func (k kit) prepare(ctx context.Context, dir string) error {
	final := k
	k.archive = filepath.Join(dir, filepath.Base(final.archive))
	k.store = filepath.Join(dir, filepath.Base(final.store))
	if err := k.format(ctx); err != nil {
		return fmt.Errorf("format a store: %w", err)
	}
	if err := k.train(ctx); err != nil {
		return fmt.Errorf("archive the loaded classes: %w", err)
	}
	return nil
}

// format makes the store. It says nothing of ports, so that copies of it serve
// all brokers.
func (k kit) format(ctx context.Context) error {
	file := k.store + ".properties"
	text := properties(k.store, ports{}, settings{})
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	_, err := run(k.jvm(ctx, nil, "kafka.tools.StorageTool", "format", "-t", clusterID, "-c", file))
	return err
}

// train runs a broker until it answers, and has its JVM archive the classes that
// it has loaded by then.
func (k kit) train(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "kafkatest-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b, err := launch(ctx, k, dir, settings{jvm: []string{"-XX:ArchiveClassesAtExit=" + k.archive}})
	if err != nil {
		return err
	}
	if err := b.Stop(); err != nil {
		return err
	}
	if !exists(k.archive) {
		return fmt.Errorf("%s was not written\n%s", k.archive, b.tail())
	}
	return nil
}
