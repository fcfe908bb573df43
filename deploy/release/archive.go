package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// A packed file has its place in an archive.
type packed struct {
	name, from string
	mode       fs.FileMode
}

// archived returns the files of the archive, in the order of their names.
func (p *program) archived() ([]packed, error) {
	all := []packed{
		{filepath.Base(p.binary()), p.binary(), 0o755},
		{licensesFile, filepath.Join(p.dir(), licensesFile), 0o644},
	}
	for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md", "deploy/feedbridge.yaml", "deploy/alerts.yaml"} {
		all = append(all, packed{file, filepath.Join(p.source, file), 0o644})
	}
	if p.system == "linux" {
		for _, file := range []string{"deploy/feedbridge.service", "deploy/feedbridge.sysusers", "deploy/feedbridge.tmpfiles"} {
			all = append(all, packed{file, filepath.Join(p.source, file), 0o644})
		}
	}
	for _, dir := range []string{"man", "completion"} {
		entries, err := os.ReadDir(filepath.Join(p.work, dir))
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			all = append(all, packed{dir + "/" + entry.Name(), filepath.Join(p.work, dir, entry.Name()), 0o644})
		}
	}
	slices.SortFunc(all, func(a, b packed) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	return all, nil
}

// writeArchive writes a tar.gz, for Windows a zip, with one directory.
func (p *program) writeArchive(context.Context) error {
	files, err := p.archived()
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if p.system == "windows" {
		err = p.writeZip(&archive, files)
	} else {
		err = p.writeTar(&archive, files)
	}
	if err != nil {
		return err
	}
	suffix := ".tar.gz"
	if p.system == "windows" {
		suffix = ".zip"
	}
	return os.WriteFile(filepath.Join(p.out, p.name()+suffix), archive.Bytes(), 0o644)
}

func (p *program) writeTar(to *bytes.Buffer, files []packed) error {
	compressed, err := gzip.NewWriterLevel(to, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	for _, file := range files {
		text, err := os.ReadFile(file.from)
		if err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: p.name() + "/" + file.name, Mode: int64(file.mode), Size: int64(len(text)), ModTime: p.date, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(text); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

func (p *program) writeZip(to *bytes.Buffer, files []packed) error {
	archive := zip.NewWriter(to)
	for _, file := range files {
		text, err := os.ReadFile(file.from)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: p.name() + "/" + file.name, Method: zip.Deflate, Modified: p.date}
		header.SetMode(file.mode)
		w, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return archive.Close()
}
