package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// configFile is a configuration file that is changed, or created if info is nil.
type configFile struct {
	name string // as it was typed
	path string // of the file itself, behind symbolic links
	data []byte
	info fs.FileInfo
}

// openConfigFile reads a file that is to be changed. It returns an error if that is not possible.
func openConfigFile(name string) (*configFile, error) {
	path, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s; 'feedbridge init %[1]s' writes one", name)
	}
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(path)
	}
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file, and cannot be changed", name)
	case info.Mode().Perm()&0o222 == 0:
		return nil, fmt.Errorf("%s is read-only, and is unchanged; make it writable, or add the feed where the file is made", name)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be written, and is unchanged: %w", name, err)
	}
	defer func() { _ = file.Close() }() // it was only read
	data, err := io.ReadAll(file)
	return &configFile{name, path, data, info}, err
}

// replace replaces the content of the file at once, unless it was changed since it was read. Its mode and owner stay,
// and symbolic links to it. After a crash the file has the old or the new content.
func (f *configFile) replace(data []byte) error {
	if f.info == nil {
		return f.create(data)
	}
	now, err := os.ReadFile(f.path)
	if err == nil && !bytes.Equal(now, f.data) {
		err = errors.New("another program has changed it meanwhile; try again")
	}
	if err == nil {
		err = f.rename(data)
	}
	if err != nil {
		return fmt.Errorf("%s is unchanged: %w", f.name, err)
	}
	return nil
}

func (f *configFile) rename(data []byte) error {
	dir := filepath.Dir(f.path)
	file, err := os.CreateTemp(dir, "."+filepath.Base(f.path)+"-*")
	if err != nil {
		return fmt.Errorf("the directory must be writable, too: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // unless it was renamed
	_, err = file.Write(data)
	err = errors.Join(err, keepOwner(file, f.info), file.Chmod(f.info.Mode().Perm()), file.Sync(), file.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(file.Name(), f.path); err != nil {
		return err
	}
	if d, err := os.Open(filepath.Dir(f.path)); err == nil {
		_ = d.Sync() // makes the new name durable; not on Windows
		_ = d.Close()
	}
	return nil
}

// create writes the file unless there is one.
func (f *configFile) create(data []byte) error {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		_ = os.Remove(f.path) // it has only a part
	}
	return err
}
