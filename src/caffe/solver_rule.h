/* solver_rule.h - the optimizer and the schedule that a solver describes.
 *
 * Which record that is, and which field is which option, say the lines `caffe` of the records in src/optim/:
 *
 *     caffe RMSProp base_lr=lr rms_decay=alpha delta=eps ...  when momentum=0 centered=false
 *     caffe step stepsize=size gamma=gamma  when warmup=0
 */
#ifndef GRADUS_CAFFE_SOLVER_RULE_H
#define GRADUS_CAFFE_SOLVER_RULE_H

#include "dispatch/factory.h"
#include "format/protobuf.h"

/* A record and its options, from gd_malloc. */
typedef struct gd_caffe_rule {
    const gd_factory *factory;
    void *options;
} gd_caffe_rule;

/* The optimizer for the type of a solver, and the schedule for its lr_policy. A message has the place in
 * the file. */
gd_status gd_caffe_read_optimizer(const gd_pb *solver, gd_caffe_rule *rule);
gd_status gd_caffe_read_schedule(const gd_pb *solver, gd_caffe_rule *rule);
void gd_caffe_rule_free(gd_caffe_rule *rule);

/* The same as text: "sgd", "lr=0.01 momentum=0.9". */
enum { GD_CAFFE_RULE_TEXT = 1200 };
gd_status gd_caffe_print_optimizer(const gd_pb *solver, const gd_factory **factory, char *text);
gd_status gd_caffe_print_schedule(const gd_pb *solver, const gd_factory **factory, char *text);

#endif
