/* csv_regression.c - predicts the prices of houses from a table with numbers, categories and
 * missing values.
 *
 *     csv_regression FILE.csv TARGET     a table and the column to predict
 *     csv_regression                     a table that the program generates
 */
#include <gradus/gradus.h>
#include <stdio.h>

#include "show.h"

/* The price depends on area, city and year; some years are missing. */
static const char *make_table(void) {
    static const char *const cities[] = {"Bern", "Oslo", "Rome"};
    static const double factor[] = {1.5, 1.2, 1.0};
    FILE *f = fopen("houses.csv", "w");
    gd_random r = gd_random_of(1, 0);
    if (!f) return "houses.csv";
    fputs("area,city,year,price\n", f);
    for (int i = 0; i < 2000; i++) {
        const double area = gd_random_between(&r, 40, 200), noise = gd_random_normal(&r);
        const int city = (int)gd_random_below(&r, 3), year = 1950 + (int)gd_random_below(&r, 70);
        fprintf(f, "%.0f,%s,", area, cities[city]);
        if (gd_random_uniform(&r) > 0.05) fprintf(f, "%d", year);
        fprintf(f, ",%.2f\n", area / 100 * factor[city] + (year - 1950) / 100.0 + 0.05 * noise);
    }
    fclose(f);
    return "houses.csv";
}

int main(int argc, char **argv) {
    choose_device(&argc, argv);
    GD_SCOPE;
    gd_seed(0);
    gd_dataset *table =
        gd_dataset_csv(argc > 1 ? argv[1] : make_table(), .target = argc > 2 ? argv[2] : "price",
                       .missing = GD_MEAN, .standardize = true);
    gd_module *net = gd_nn_sequential(gd_nn_linear(GD_ANY, 32), gd_nn_relu(), gd_nn_linear(32, 1));
    gd_compile(net, .optimizer = "adam lr=0.01", .loss = "mse", .metrics = "mae, r2");
    gd_history *h = gd_fit(net, table, .epochs = 30, .batch = 32, .validation_split = 0.2,
                           .callbacks = gd_callbacks(gd_early_stopping(.patience = 5)));
    if (!h) return show_failure();
    gd_history_plot(h, "houses.svg");
    printf("mean error %.3f, r2 %.3f\n", gd_history_last(h, "val_mae"),
           gd_history_last(h, "val_r2"));
    return show_failure();
}
