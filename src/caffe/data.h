/* data.h - the data layers of a net as one stream of batches.
 *
 * Caffe reads data by layers without bottoms: Data, ImageData, HDF5Data, MemoryData, DummyData,
 * WindowData and Input. All of them that a net has in a phase become one loader. A batch of it is
 * what one iteration of Caffe reads: the tops of all these layers, in the order of the layers and
 * of their tops. Each is f32, as all blobs of Caffe, also the labels; tops may differ in their
 * first size.
 *
 *     gd_caffe_data *data;
 *     GD_TRY(gd_caffe_data_open(&data, layers, count, GD_CAFFE_TRAIN, "lenet_train_test.prototxt",
 *                               &(gd_caffe_data_options){.workers = 2}));
 *     for (int i = 0; i < gd_caffe_data_tops(data); i++)
 *         add_blob(gd_caffe_data_top(data, i), gd_caffe_data_shape(data, i));
 *     for (gd_tensors batch; gd_loader_next(gd_caffe_data_loader(data), &batch);) ...
 *
 * Batches run on across the end of the data, as in Caffe: with 10 samples, the second batch of 8
 * has samples 8, 9, 0, ..., 5. The stream has no end. Its parts of .batches batches are the epochs
 * of the loader, and the next epoch continues where the last one ended: a test net whose .batches
 * is its test_iter continues from test to test.
 *
 * A batch is a function of the seed and its number alone, so workers and states of the loader need
 * nothing from here. Random crops, mirroring and orders are not the numbers that Caffe would draw.
 */
#ifndef GRADUS_CAFFE_DATA_H
#define GRADUS_CAFFE_DATA_H

#include "caffe/phase.h"
#include "format/protobuf.h"
#include "gradus/caffe.h"
#include "gradus/loader.h"
#include "gradus/tensor.h"

typedef struct gd_caffe_data gd_caffe_data;

typedef struct gd_caffe_data_options {
    int workers;       /* threads of the loader */
    int prefetch;      /* batches that each worker loads in advance; 0: as the loader's default */
    uint64_t seed;     /* of crops, mirroring, orders, rand_skip and random data */
    int64_t batches;   /* in an epoch of the loader; 0: the epoch has no end (2^40 batches) */
    gd_device *device; /* where batches are; NULL: the CPU */
    const char *dummy; /* random data in place of layers: "data=3,227,227"; NULL: none. See below */
    const gd_caffe_arrays *arrays; /* of the program, up to a layer NULL; NULL: none */
} gd_caffe_data_options;

/* Whether a layer of this type is one of those above. AnnotatedData and VideoData of SSD are, too:
 * opening one fails, and names it. */
bool gd_caffe_is_data(const char *type);

/* Opens the data of these layers: LayerParameters as net files have them after an upgrade, which
 * belong to the phase; they are not used after the call. `of_file`: the file of the net; paths that
 * it names are looked for as read.h says. The loader belongs to the current scope, and *out is
 * valid as long as the loader. No layers: *out is NULL and the status GD_OK.
 *
 * Messages begin with the place in the file and name the layer: "net.prototxt:3:1: layer 'mnist'
 * (Data): ...".
 *
 * .dummy is a list like "data=3,227,227 label=1000": each layer with a top of this name reads
 * nothing, and the top is normally distributed numbers, with the batch size of the layer as its
 * first size (of a layer without one: 1). A single number, for a top after the first, is that of
 * its classes: integers from 0 below it. Tops of the layer that the list does not name have the
 * classes 0 and 1.
 *
 * MemoryData and Input layers get their arrays from .arrays, or later from gd_caffe_data_give. */
gd_status gd_caffe_data_open(gd_caffe_data **out, const gd_pb *const *layers, int count,
                             gd_caffe_phase phase, const char *of_file,
                             const gd_caffe_data_options *options);

/* The tops: how many, the name and the shape, with the batch, of each. The shape is that of the
 * first batch: a list of images of different sizes, of which each is a batch, gives others
 * later. */
int gd_caffe_data_tops(const gd_caffe_data *data);
const char *gd_caffe_data_top(const gd_caffe_data *data, int top);
gd_shape gd_caffe_data_shape(const gd_caffe_data *data, int top);

/* The stream. All its tensors are inputs: its .targets is 0. */
gd_loader *gd_caffe_data_loader(const gd_caffe_data *data);

/* Gives a MemoryData layer its samples and labels, or an Input layer a tensor for each top: each
 * (n, ...) with n a multiple of the batch size and the other sizes of the top. They are held. Until
 * then the batches of such a layer fail. The stream runs on across the end of the arrays. */
gd_status gd_caffe_data_give(gd_caffe_data *data, const char *layer, gd_tensors arrays);
/* Whether a layer still lacks its arrays; *layer is its name. */
bool gd_caffe_data_lacks(const gd_caffe_data *data, const char **layer);

#endif
